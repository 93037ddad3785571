"""A simulation in a few plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.brackets import Growth
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.decision.rules import write_parts
from safedial.function_classes import FunctionClass
from safedial.notebook import card
from safedial.policies import promised_risk, shown_spec
from safedial.simulation.proved import promise_holds
from safedial.simulation.run import Simulation
from safedial.stats import seed_interval, violation_interval

Array = NDArray[np.float64]


def summary(simulation: Simulation, row: int = 0) -> dict[str, Any]:
    """One spec row of a simulation as plain numbers, averaged over seeds."""
    violations, most = simulation.violations[row], simulation.attainable_reward
    form = write_parts({"spec": simulation.spec, "dose": simulation.dose, "stated": simulation.stated})
    return {
        "policy": simulation.policy.name,
        "dim": simulation.world.dim,
        "threshold": _threshold(simulation.spec, row),
        "rounds": simulation.rounds,
        "seeds": len(simulation.seeds),
        "violation_rate": float(violations.mean() / simulation.rounds),
        "violation_ci": list(violation_interval(violations, simulation.rounds)),
        "regret": float(simulation.regret[row].mean()),
        "reward": float(simulation.reward[row].mean()),
        "clairvoyant_reward": float(simulation.clairvoyant_reward[row].mean()),
        "rounds_per_second": simulation.rounds_per_second,
        "exact_clairvoyant_reward": float(simulation.exact_clairvoyant_reward[row].mean()),
        "full_dose_rounds": float(simulation.full_dose_rounds[row].mean()),
        "full_dose_violation_rate": _share(simulation.full_dose_violations[row], simulation.full_dose_rounds[row]),
        "promised_risk": promised(simulation, row),
        "regret_ci": list(seed_interval(simulation.regret[row])),
        "informative_rounds": float(simulation.informative_rounds[row].mean()),
        "uncertified_rounds": float(simulation.uncertified_rounds[row].mean()),
        "alarmed_seeds": int(simulation.alarmed[row].sum()),
        "exact_share": _share(simulation.reward[row], simulation.exact_clairvoyant_reward[row]),
        "attainable_share": None if most is None else _share(simulation.reward[row], most[row]),
        "settings": {
            "spec": shown_spec(simulation.policy, form["spec"]),
            "policy": {name: _plain(value) for name, value in simulation.policy.options.items()},
            "world": simulation.world.to_dict(),
            "dose": form["dose"],
            "seeds": simulation.seeds,
            "engine": simulation.engine,
            "draws": simulation.draws,
            **({} if simulation.stated is None else {"stated": form["stated"]}),
        },
    }


def notebook_card(simulation: Simulation) -> str:
    """A simulation as HTML for a notebook: a row for each spec row, and whether the promise is proved here."""
    rounds, promise = simulation.rounds, PROMISES[simulation.policy.promise]
    rows = (
        {
            "threshold": _threshold(simulation.spec, row),
            "violation rate": float(simulation.violations[row].mean() / rounds),
            "95 % interval": list(violation_interval(simulation.violations[row], rounds)),
            "promised risk": promised(simulation, row),
            "regret": float(simulation.regret[row].mean()),
            "share of the clairvoyant's reward": _share(simulation.reward[row], simulation.clairvoyant_reward[row]),
        }
        for row in range(len(simulation.violations))
    )
    proved = _proved(simulation)
    note = f"{promise.in_brief} It is true in this simulated world." if proved else "Nothing is proved in this world."
    title = f"{simulation.policy.name} in {simulation.world.name}: {rounds:,} rounds, {len(simulation.seeds)} seeds"
    return card(title, rows, [note])


def _threshold(spec: SafetySpec, row: int) -> Any:
    """A spec row's threshold, or those of several costs by name."""
    if spec.costs is not None:
        return {name: float(cost.threshold) for name, cost in spec.costs.items()}
    return float(np.atleast_1d(spec.threshold)[row if np.ndim(spec.threshold) else 0])


def _plain(option: Any) -> Any:
    """A policy's option as a report shows it: a function class by its description, a bracket by its numbers."""
    if isinstance(option, Growth):
        return option.to_dict()
    return option.describe() if isinstance(option, FunctionClass) else option


def _share(part: Array, whole: Array) -> float | None:
    """Σ part / Σ whole, or None if the whole is 0."""
    return float(part.sum() / whole.sum()) if whole.sum() else None


def promised(simulation: Simulation, row: int) -> float | None:
    """The risk of a spec row's promise (`SafetySpec.promised_risk`), or None if there is no promise."""
    if not _proved(simulation):
        return None
    total = np.atleast_1d(promised_risk(simulation.policy, simulation.stated or simulation.spec))
    return float(total[row if total.size > 1 else 0])


def _proved(simulation: Simulation) -> bool:
    """Whether the promise is proved: the world is within what was stated to the policy, its threshold too."""
    spec, stated = simulation.spec, simulation.stated or simulation.spec
    kept = spec.costs is not None or bool(np.all(stated.threshold <= np.asarray(spec.threshold)))
    return kept and promise_holds(simulation.policy, simulation.world, stated, true=spec)
