"""A decision as the body of its event, and back: every number its certificate is made of, under its own name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.core.action import Choice
from safedial.core.confidence import Bounds
from safedial.core.estimate import Prediction, Ridges
from safedial.core.safe_set import SafeSet
from safedial.decision.decision import Decision, promise_of
from safedial.decision.learners.conformal_learner import View
from safedial.decision.rules import Rules
from safedial.study.state import State
from safedial.version import __version__


class Noted(NamedTuple):
    """What a caller says with a question: the idempotency key, and metadata."""

    key: str | None = None
    meta: dict[str, Any] | None = None


def noted_in(body: Mapping[str, Any]) -> Noted:
    """What was noted down in the body of a `decided` event."""
    return Noted(body.get("key"), body.get("meta"))


def body_of(decision: Decision, raw: list[float], state: State, noted: Noted) -> dict[str, Any]:
    """Plain values; a bound that is not finite (nothing is known yet) is null. `state` is what was known before."""
    choice, seen = decision.choice, decision.prediction
    bounds, safe = choice.bounds, choice.safe
    return {
        **(_since_2(decision, state, noted) if decision.rules.version > 1 else {}),
        "action": decision.action,
        "baseline_cost": decision.baseline_cost,
        "context": raw,
        "doubt": decision.doubt,
        "habit": decision.habit,
        "intensity": decision.intensity,
        "model_seq": state.seq,
        "open": len(state.open),
        "void": state.void,
        "imported": state.imported,
        "promise": decision.promise,
        "round": decision.round,
        "safe_action": decision.safe_action,
        "version": __version__,
        "choice": {
            "certified": bool(safe.certified),
            "cost_radius": float(bounds.cost_radius),
            "cost_upper": float(bounds.cost_upper),
            "intensity": float(choice.intensity),
            "refuted": bool(bounds.refuted),
            "reward_index": float(choice.reward_index),
            "reward_radius": float(bounds.reward_radius),
            "reward_upper": float(bounds.reward_upper),
            "safe_intensity": float(safe.intensity),
            **({} if bounds.noise is None else {"noise": float(bounds.noise)}),
        },
        "prediction": _view(seen) if isinstance(seen, View) else _prediction(seen),
    }


def _since_2(decision: Decision, state: State, noted: Noted) -> dict[str, Any]:
    """What bodies of version 2 hold besides; `evidence` is that of the exchangeability watch."""
    told = {
        "frozen": state.frozen,
        "resumed": list(state.resumes),
        "unwatched": state.watch.unwatched,
        "corrected_violations": state.corrected_violations,
    }
    told |= {name: value for name, value in noted._asdict().items() if value is not None}
    if decision.extrapolated:
        told["extrapolated"] = list(decision.extrapolated)
    if state.learner.watches_itself:
        told["evidence"] = state.watch.evidence
    return told


def decision_of(rules: Rules, body: Mapping[str, Any], context: Any) -> Decision:
    """The decision that `body_of` wrote down, able to state its certificate again."""
    said, seen = body["choice"], body["prediction"]
    bounds = Bounds(
        _bound(said["reward_upper"]),
        _bound(said["cost_upper"]),
        said["reward_radius"],
        said["cost_radius"],
        said["refuted"],
        _bound(said["noise"]) if "noise" in said else None,
    )
    safe = SafeSet(said["safe_intensity"], said["certified"])
    choice = Choice(said["intensity"], safe, bounds, said["reward_index"])
    if rules.policy.promise == "conformal":
        prediction: Any = View(**{**seen, "sizes": np.array(seen["sizes"], dtype=np.int64)})
    else:
        prediction = prediction_of(rules, seen)
    return Decision(
        body["action"],
        body["intensity"],
        body["safe_action"],
        body["round"],
        not body["doubt"] and promise_of(rules, choice) == "certified",
        context,
        prediction,
        choice,
        body["baseline_cost"],
        body["doubt"],
        rules,
        habit=body["habit"],
        extrapolated=tuple(body.get("extrapolated", ())),
    )


def prediction_of(rules: Rules, seen: Mapping[str, Any]) -> Prediction:
    """The prediction that a linear decision's body holds."""
    ridges = Ridges(**{name: np.array(part) for name, part in seen["ridges"].items()}) if "ridges" in seen else None
    noise = _bound(seen["noise"]) if "noise" in seen else None
    return Prediction(**{**seen, "ridges": ridges, "noise": noise}, dim=rules.dim)


def _prediction(seen: Prediction) -> dict[str, Any]:
    told: dict[str, Any] = {
        "cost": seen.cost,
        "informative_rounds": seen.informative_rounds,
        "log_det": seen.log_det,
        "norm": seen.norm,
        "reward": seen.reward,
        "width": seen.width,
    }
    if seen.cost_energy is not None:
        told |= {"reward_energy": float(seen.reward_energy), "cost_energy": float(seen.cost_energy)}
    if seen.noise is not None:
        told["noise"] = float(seen.noise)
    if seen.ridges is not None:
        parts = seen.ridges._asdict().items()
        told["ridges"] = {name: np.asarray(part).tolist() for name, part in parts if part is not None}
    return told


def _view(seen: View) -> dict[str, Any]:
    """As bodies from before there were guards had it, where these say nothing."""
    silent = {name for name in View._field_defaults if getattr(seen, name) is None}
    told = {name: value for name, value in seen._asdict().items() if name not in silent}
    return {**told, "sizes": seen.sizes.tolist()}


def _bound(value: float | None) -> float:
    return math.inf if value is None else value
