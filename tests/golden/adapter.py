"""The one file of the golden answers that knows the package's names.

Cases speak a vocabulary of their own (plain dicts, lists and numbers). `open_agent`, `ask`, `ask_many`, `preview`,
`tell`, `tell_before`, `evidence`, `stopped`, `resume` and `summary` drive an agent; `totals` runs a simulation, and
`table1` counts the paper's table. Where the package renames something, a table or a line here changes, and nothing
that is recorded.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from unittest.mock import patch

import numpy as np

from safedial import Agent, Cost, Dial, Dose, Features, SafetySpec
from safedial.bounds.margin import noise_margin
from safedial.model.brackets import additive, relative, spread
from safedial.model.dose import hill, identity, logistic, power, tabulated
from safedial.model.noise_scale import own_scale, power_scale, proportional, with_any_sensor, with_sensor
from safedial.paper.table1 import table1_spec
from safedial.policies import make_policy
from safedial.policies.classes import binary, features, finite, kernel, linear
from safedial.policies.classes.features import fourier, splines
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import DataWorld, LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.run import simulate

POLICIES = {
    "ucb": "hp_ucb",
    "probe": "hp_probe",
    "expectation": "on_expectation",
    "greedy": "epsilon_greedy",
    "thompson": "thompson",
    "fixed": "fixed",
    "oracle": "clairvoyant",
    "bayes": "hp_bayes",
    "conformal": "hp_conformal",
    "shield": "hp_shield",
    "student": "hp_student",
    "class-ucb": "nonlinear_hp_ucb",
    "class-probe": "nonlinear_hp_probe",
}
OPTIONS: dict[str, str] = {"promise": "guarantee"}
"""Our names of a policy's options → the package's, where they differ."""
FIELDS: dict[str, str] = {}
"""Our names of a spec's fields → the package's, where they differ."""
GUARANTEES = {
    "constants": "certified",
    "constants, all rounds": "joint",
    "exchangeable": "conformal",
    "bracket": "bracket",
    "gaussian": "student",
}
PROMISED = {given: ours for ours, given in GUARANTEES.items()} | {name: name for name in ("declared", "expected")}
"""What a decision promises → our word for it; any other promises nothing."""
REASONS = {
    "": "",
    "alarm": "violations",
    "drift": "drift",
    "bracket_drift": "drift",
    "student_drift": "drift",
    "start_refuted": "start",
    "noise_broken": "noise",
    "assumption_broken": "refuted",
    "no_certified_action": "impossible",
}
"""Why the fallback is advised, or why an agent stopped → our word for it."""
CURVES = {"identity": identity, "power": power, "hill": hill, "logistic": logistic, "tabulated": tabulated}
BRACKETS = {"relative": relative, "additive": additive, "spread": spread}
SCALES = {
    "proportional": proportional,
    "with sensor": with_sensor,
    "with any sensor": with_any_sensor,
    "power": power_scale,
    "own": own_scale,
}
CLASSES = {"linear": linear, "features": features, "finite": finite, "kernel": kernel, "binary": binary}
MAPS = {"splines": splines, "fourier": fourier}


def _data_world(rows, **stated):
    return DataWorld(rows, **stated)


WORLDS = {"linear": LinearWorld, "dose response": DoseResponseWorld, "nonlinear": NonlinearWorld, "data": _data_world}


def _made(stated, key, makers):
    """What a table describes: its name under `key`, the rest are arguments."""
    if stated is None or not isinstance(stated, dict):
        return stated
    rest = {name: value for name, value in stated.items() if name != key}
    return makers[stated[key]](**rest)


def _curve(stated):
    return _made(stated, "curve", CURVES)


def _class(stated):
    if not isinstance(stated, dict):
        return stated
    stated = dict(stated)
    if isinstance(stated.get("transform"), dict):
        stated["transform"] = _made(stated["transform"], "map", MAPS)
    return _made(stated, "class", CLASSES)


def make_the_policy(stated):
    """The package's policy."""
    options = {}
    classes = {}
    for name, value in stated.items():
        if name == "name":
            continue
        given = value
        if name == "growth":
            given = _made(value, "bracket", BRACKETS)
        elif name.endswith("_class"):
            given = classes.setdefault(id(value), _class(value))
        options[OPTIONS.get(name, name)] = given
    return make_policy(POLICIES[stated["name"]], **options)


def make_the_spec(stated):
    """The package's statement of the guarantee and its assumptions."""
    given = {FIELDS.get(name, name): value for name, value in stated.items()}
    given["guarantee"] = GUARANTEES[given.pop("promise", "constants")]
    if "noise_scale" in given:
        given["noise_scale"] = _made(given["noise_scale"], "scale", SCALES)
    if "costs" in given:
        given["costs"] = {name: _cost(cost) for name, cost in given["costs"].items()}
    return SafetySpec(**given)


def _cost(stated):
    stated = dict(stated)
    stated["growth"] = _made(stated.get("growth"), "bracket", BRACKETS)
    stated["curve"] = _curve(stated.get("curve"))
    return Cost(**stated)


def _dose(stated):
    if stated is None:
        return None
    return Dose(_curve(stated.get("reward")) or identity(), _curve(stated.get("cost")) or identity())


def _policy(stated):
    """What an agent is given; for "default" what follows from the spec, with options where there are any."""
    if stated["name"] != "default":
        return make_the_policy(stated)
    if len(stated) == 1:
        return None
    options = {OPTIONS.get(name, name): value for name, value in stated.items() if name != "name"}
    return {
        "name": POLICIES["shield"],
        "base": "proposal",
        **options,
        "growth": _made(stated["growth"], "bracket", BRACKETS),
    }


class Handle:
    """An agent and what its case says."""

    def __init__(self, case):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.case = case
            parts = {
                "policy": _policy(case["policy"]),
                "dose": _dose(case.get("dose")),
                "dial": Dial(**case["dial"]) if "dial" in case else None,
                "features": Features(**case["features"]) if "features" in case else None,
                "start_action": case.get("start"),
                "fallback_action": case.get("fallback"),
                "seed": case.get("coins", 0),
            }
            self.agent = Agent(case["dim"], make_the_spec(case["spec"]), **parts)

    @property
    def ends(self):
        """The dial's low and high end."""
        return self.agent.dial.low, self.agent.dial.high


def open_agent(case):
    return Handle(case)


def _asked(context, proposal=None, baseline=0.0):
    given = {} if proposal is None else {"proposal": proposal}
    return (context,), given | ({"baseline_cost": baseline} if baseline else {})


def ask(handle, context, **more):
    """One round's advice, in our words."""
    given, options = _asked(context, **more)
    return _said(handle, handle.agent.ask(*given, **options))


def ask_many(handle, rows):
    """Advice for several rounds at once."""
    options = (
        {"baseline_costs": [row.get("baseline", 0.0) for row in rows]} if any("baseline" in row for row in rows) else {}
    )
    if rows[0].get("proposal") is not None:
        options["proposals"] = [row["proposal"] for row in rows]
    found = handle.agent.ask_many([row["context"] for row in rows], **options)
    return [_said(handle, each) for each in found]


def preview(handle, context, **more):
    """The setting that would be advised now."""
    given, options = _asked(context, **more)
    return handle.agent.preview(*given, **options).action


def tell(handle, asked, reward=None, cost=None, *, applied=None, lost=False, unrelated=False):
    """The outcome of a round that was asked; `lost`: there is none."""
    given = {} if applied is None else {"applied_action": applied}
    if unrelated:
        given["unrelated"] = True
    elif lost:
        given["unrelated"] = False
    if lost:
        handle.agent.tell(asked["decision"], **given)
    else:
        handle.agent.tell(asked["decision"], reward=reward, cost=cost, **given)


def tell_before(handle, context, applied, reward, cost):
    """An outcome from before the first round."""
    handle.agent.tell(context, applied, reward, cost)


def evidence(handle):
    """ln of both kinds of evidence, None where one is 0, and the violations so far."""
    agent = handle.agent
    logs = (math.log(value) if value > 0.0 else None for value in (agent.evidence, agent.noise_evidence))
    return (*logs, agent.violations)


def stopped(handle):
    """Our word for the rule that stopped the agent, "" if none has."""
    return REASONS[handle.agent.stop_reason]


def resume(handle, *, forget=False):
    handle.agent.resume(forget=forget, unrelated=forget)


def summary(handle):
    """What an agent knows after its rounds."""
    agent, told = handle.agent, {}
    told["decisions"], told["learned from"] = agent.decisions, agent.informative_rounds
    told["violations"], told["learning ended"] = agent.violations, agent.frozen
    if handle.case.get("coefficients", True):
        told["reward coefficients"], told["cost coefficients"] = agent.reward_coef, agent.cost_coef
    return told


def _said(handle, decision):
    upper = decision.numbers.get("cost_upper", 0.0)
    return {
        "decision": decision,
        "action": decision.action,
        "intensity": decision.intensity,
        "safe": decision.safe_action,
        "promise": PROMISED.get(decision.guarantee, "none"),
        "reason": REASONS[decision.fallback_reason],
        "index": decision.found.index,
        "bound": upper,
        "numbers": _numbers(decision),
    }


def _numbers(decision):
    """The numbers behind the bound, by our names."""
    seen = decision.numbers
    name = decision.rules.policy.name
    if name == "hp_shield":
        return _shield_numbers(seen)
    if name == "hp_conformal":
        return {
            "mean cost": seen["mean_cost"],
            "rounds": seen["rounds"],
            "known": seen["known"],
            "fitted": seen["fitted"],
            "calibrating": seen["calibrating"],
            "tenth": seen["tenth"],
        }
    if name == "hp_student":
        return _student_numbers(seen)
    if name.startswith("nonlinear"):
        reward = seen["reward_upper"]
        return {"reward bound": math.inf if reward is None else reward, "rounds": seen["informative_rounds"]}
    costs = list(decision.rules.spec.costs or ())
    if costs:
        told = {"bound": "cost_upper", "safe share": "largest", "mean cost": "cost", "width": "width"}
        parts = {f"{mine} {at}": seen[f"{cost}.{own}"] for at, cost in enumerate(costs) for mine, own in told.items()}
        return parts | {"least": costs.index(seen["least"])}
    margin = noise_margin(decision.rules.spec, decision.round, seen.get("noise"))
    told = {"radius": seen["cost_radius"], "margin": float(margin), "mean cost": seen["cost"]}
    told["width"] = seen["width"]
    if seen["reward_radius"] != seen["cost_radius"]:
        told["reward radius"] = seen["reward_radius"]
    return told | {f"dual {part}": seen[f"dual_{part}"] for part in ("cost", "width", "miss") if "dual_cost" in seen}


def _estimate(seen):
    return {"mean cost": seen.cost, "width": seen.width}


def _student_numbers(seen):
    if "least" in seen and isinstance(seen["least"], str):
        return _several_numbers(seen)
    told = {"mean cost": seen["cost"], "width": seen["width"], "spread": seen["spread"], "degrees": seen["degrees"]}
    told |= {"least": seen["least"], "ln det": seen["log_det"]}
    told |= {name: seen[name] for name in ("waiting", "lost", "starts")}
    if "conformal.cost_upper" in seen:
        told["other bound"], told["other rounds"] = seen["conformal.cost_upper"], seen["conformal.size"]
    return told


def _several_numbers(seen):
    names, told = [name.removesuffix(".cost_upper") for name in seen if name.endswith(".cost_upper")], {}
    for place, cost in enumerate(names):
        own = {key.removeprefix(f"{cost}."): value for key, value in seen.items() if key.startswith(f"{cost}.")}
        told |= {f"bound {place}": own["cost_upper"], f"safe share {place}": own["largest"]}
        told |= {f"mean cost {place}": own["cost"], f"width {place}": own["width"]}
    return told | {"least": names.index(seen["least"])}


def _shield_numbers(seen):
    names = {"base": "base", "count scale": "allowed", "climb scale": "most", "scale": "scale", "protocol": "protocol"}
    names |= {"start": "start", "rounds": "size", "rank": "rank", "known": "known", "exceeding": "would_exceed"}
    names |= {"unknown": "unknown", "level": "level", "climbing": "climbing", "group": "group"}
    return {name: seen[theirs] for name, theirs in names.items()}


def totals(case, *, engine="numpy"):
    """What a simulation adds up to: lists by row of the spec, and by seed in each; "curves" also by checkpoint."""
    stated = dict(case["world"])
    kind = stated.pop("world")
    world = WORLDS[kind](**stated)
    policy, spec = make_the_policy(case["policy"]), make_the_spec(case["spec"])
    given, size, alarms = {}, [], {}

    def record(played):
        size.append(np.sum(played.action, axis=0))

    def observe(now):
        for place in np.flatnonzero(np.ravel(now.state.bets.crossed)):
            alarms.setdefault(int(place), now.number)

    watched = policy.name == "hp_conformal"
    if engine == "numpy":
        given = {"record": record} | ({"observe": observe} if watched else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = simulate(
            policy,
            world,
            spec,
            rounds=case["rounds"],
            seeds=case.get("seeds", 8),
            dose=_dose(case.get("dose")),
            points=4,
            engine=engine,
            stated=make_the_spec(case["stated"]) if "stated" in case else None,
            **given,
        )
    told = {
        "violations": run.violations,
        "regret": run.regret,
        "reward": run.reward,
        "oracle reward": run.clairvoyant_reward,
        "exact oracle reward": run.exact_clairvoyant_reward,
        "informative rounds": run.informative_rounds,
        "rounds without a guarantee": run.uncertified_rounds,
        "full doses": run.full_dose_rounds,
        "violations at full doses": run.full_dose_violations,
        "regret by checkpoint": run.regret_curve,
        "violations by checkpoint": run.violations_curve,
    }
    if engine == "numpy":
        told["mean action"] = sum(size) / run.rounds
    if watched:
        count = run.violations.size
        told["alarm"] = [alarms.get(place, 0) for place in range(count)]
    return {name: np.asarray(value).tolist() for name, value in told.items()}


def table1(policy, *, factor=1.0):
    """The paper's Table 1: violations by threshold and seed, in the settings that reproduce it; `factor` is of all
    thresholds.
    """
    made, stated = make_policy(POLICIES[policy], radius="paper"), table1_spec()
    stated = replace(stated, threshold=stated.threshold * factor)
    run = simulate(made, LinearWorld(dim=5), stated, rounds=10_000, seeds=5, points=1)
    return run.violations.tolist()


# ---- Below this line: studies and tools. Above it: agents and simulations. ----

STUDY_WORDS: dict[str, str] = {"order": "learning_order"}
"""Names in the scripts' specifications → the package's, where they differ."""

CODES: dict[str, str] = {}
"""The package's names of rules, limits, promises and statuses → those in the answers, where they differ."""

ADVICE = ("round", "action", "intensity", "safe", "promise", "limit", "fallback", "answer")
SEEN = ("decisions", "ln evidence", "ln noise evidence", "learned", "violations", "unwatched", "open", "void")

START = 1_700_000_000_000_000
"""The time of a study's first event, in microseconds."""
MINUTE, HOUR = 60_000_000, 3_600_000_000
PATCHES: dict[str, dict[str, Any]] = {
    "transaction": {"SNAPSHOT_EVENTS": 60, "SNAPSHOT_BYTES": 1_000_000},  # so that a short study has snapshots
    "database": {"PRAGMAS": ("journal_mode=WAL", "synchronous=OFF", "foreign_keys=ON")},  # no wait for the disk
}


def clocks() -> list[Any]:
    """The modules of a study that read the time."""
    import safedial.study

    found = [import_module(f"safedial.study.{each.name}") for each in iter_modules(safedial.study.__path__)]
    return [module for module in found if hasattr(module, "now")]


def code(name: str | None) -> str:
    return CODES.get(name or "", name or "")


def renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {STUDY_WORDS.get(name, name): value for name, value in fields.items()}


class LiveStudy:
    """One study in a store of its own, at a time that only `wait` and one minute for each write move on."""

    def __init__(self, folder: Any, name: str, stated: Mapping[str, Any]) -> None:
        from safedial.study.manage import create_study

        self.name, self.at, self.patches = name, START, ExitStack()
        self.folder = Path(folder) / f"golden-{name}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for module in clocks():
            self.patches.enter_context(patch.object(module, "now", self._now))
        for module, values in PATCHES.items():
            self.patches.enter_context(patch.multiple(f"safedial.study.{module}", **values))
        self.patches.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        self.store = self._store()
        self.study = create_study(name, stated_of(stated), storage=self.store, actor="golden")

    def _store(self) -> Any:
        from safedial.study.store import Store

        return Store(f"sqlite:///{self.folder}/study.db")

    def _now(self) -> int:
        return self.at

    def _tick(self) -> None:
        self.at += MINUTE

    def wait(self, hours: float) -> None:
        self.at += int(hours * HOUR)

    def reopen(self) -> None:
        from safedial.study.manage import open_study

        self.store.close()
        self.store = self._store()
        self.study = open_study(self.name, storage=self.store, actor="golden")

    def close(self) -> None:
        self.store.close()
        self.patches.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(
        self,
        context: Any,
        *,
        baseline: float = 0.0,
        outside: bool = False,
        meta: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> tuple[str, dict[str, Any]]:
        """(its id, the advice); `more` is key, proposal, unit and visit."""
        self._tick()
        given = {"baseline_cost": baseline, "allow_extrapolation": outside, "meta": meta, **more}
        found = self.study.ask(context, **given)
        return found.id, {
            "round": found.decision.round,
            "action": found.action,
            "intensity": found.intensity,
            "safe": found.safe_action,
            "promise": code(found.guarantee),
            "limit": code(found.limit),
            "fallback": code(found.decision.fallback_reason),
            "answer": code(found.proposal_answer),
        }

    def tell(self, name: str, *, reward: Any, cost: Any, applied: float | None = None, **flags: Any) -> None:
        """`flags` are throttled and unrelated. The same report again writes nothing."""
        self._tick()
        for created in (True, False):
            told = self.study.tell(name, reward=reward, cost=cost, applied_action=applied, **flags)
            assert told.created is created

    def correct(self, name: str, *, key: str | None = None, applied: float | None = None, **values: Any) -> None:
        """The same request with the same key again writes nothing."""
        self._tick()
        for created in (True, False)[: 2 if key else 1]:
            told = self.study.correct(name, reason="a typing error", key=key, applied_action=applied, **values)
            assert told.created is created

    def void(self, name: str, *, unrelated: bool) -> None:
        self._tick()
        self.study.void(name, reason="the wrong ward", unrelated=unrelated)

    def expire(self, names: Sequence[str], *, unrelated: bool) -> None:
        self._tick()
        self.study.expire(names, reason="moved away", unrelated=unrelated)

    def resume(self, rule: str | None, *, forget: bool) -> None:
        self._tick()
        self.study.resume("looked into it", rule=rule, forget=forget, unrelated=forget)

    def amend(self, changes: Mapping[str, Any], *, keep: bool | None) -> None:
        self._tick()
        self.study.amend(changes=renamed(changes), reason="a new guideline", keep_learning=keep)

    def bring(self, rounds: Sequence[Mapping[str, Any]]) -> None:
        self._tick()
        self.study.import_history(rounds)

    def mark(self) -> None:
        self._tick()
        self.study.checkpoint("golden")

    def refuses(self, call: Callable[[], Any]) -> bool:
        from safedial.errors import InvalidInput
        from safedial.study.study_errors import StudyError

        try:
            call()
        except (InvalidInput, StudyError):
            return True
        return False

    def summary(self) -> dict[str, Any]:
        return counts_of(self.study.status())

    def replayed(self) -> dict[str, Any]:
        """The counts of a state that is made from the log alone, from its first event."""
        from safedial.study.database import reading
        from safedial.study.replay_log import Source, replay

        with reading(self.store.engine) as connection:
            source = Source(connection, self.study._id, self.name)
            return counts_of(replay(source, self.study.spec, stored=()).summary())

    def verified(self) -> dict[str, Any]:
        found = self.study.verify()
        return {"ok": found.ok, "inexact": found.inexact, "decisions": found.decisions}

    def rounds(self, ids: Sequence[str]) -> list[list[Any]]:
        """Of each decision, and of each round from before the study: its status, whether its reason was stated to be
        unrelated, what was applied, reward and cost as they stand now, whether it counts as a violation.
        """
        return [
            [
                code(row["status"]),
                row["unrelated"],
                row["applied_action"],
                row["reward"],
                {name.removeprefix("cost_"): row[name] for name in row if name.startswith("cost_")} or row.get("cost"),
                row["violated"],
                row.get("phase", 1),
            ]
            for row in self.study.rows()
        ]

    def certificate(self, name: str, ids: Sequence[str]) -> dict[str, Any]:
        return certificate_of(self.study.decision(name).certificate, ids)


def stated_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A script's specification as the package takes it: plain values."""
    return renamed(fields)


def counts_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts and the evidence of a study."""
    names = {
        "decisions": "decisions",
        "imported": "imported",
        "outcomes": "outcomes",
        "open": "open",
        "expired": "expired",
        "void": "void",
        "held": "waiting",
        "learning ended": "frozen",
        "learned": "informative_rounds",
        "violations": "violations",
        "unwatched": "unwatched",
        "resumes": "resumes",
        "corrected violations": "corrected_violations",
    }
    optional = {"at the start": "start_rounds", "amendments": "amendments", "since round": "since_round"}
    found = {mine: facts[theirs] for mine, theirs in names.items()}
    found |= {mine: facts[theirs] for mine, theirs in optional.items() if theirs in facts}
    found |= {f"ln {each}": logarithm(facts[each.replace(" ", "_")]) for each in ("evidence", "noise evidence")}
    return found | {"stopped": code(facts["stop_reason"])}


def logarithm(evidence: float | None) -> float | None:
    """Of evidence, which is compared by it."""
    return None if evidence is None else -math.inf if evidence == 0.0 else math.log(evidence)


EVERY = {
    "promise": "guarantee",
    "holds": "holds",
    "round": "round",
    "baseline": "baseline_cost",
    "safe intensity": "safe_intensity",
    "reward index": "reward_index",
    "limit": "limit",
    "intensity": "intensity",
    "action": "action",
    "safe": "safe_action",
    "proposal": "proposal",
    "answer": "proposal_answer",
    "fallback": "fallback_action",
    "open": "open",
    "void": "void",
    "imported": "imported",
    "unwatched": "unwatched",
    "corrected violations": "corrected_violations",
    "learning ended": "frozen",
    "guard": "limiter",
    "key": "key",
    "unit": "unit",
    "visit": "visit",
    "outside ranges": "extrapolated",
}
"""What every certificate may hold: the answers' names → the package's."""

BOUND = {
    "bound": "cost_upper",
    "bound uncut": "cost_upper_uncut",
    "reward bound": "reward_upper",
    "radius": "radius",
    "noise margin": "noise_margin",
    "sensor margin": "sensor_margin",
    "safe intensity": "safe_intensity",
    "start dose": "start_dose",
    "reach intensity": "bound_intensity",
    "at the start": "start_rounds",
    "unknown scores": "unknown_scores",
    "open rounds needed": "open_rounds_needed",
    "lost": "lost_rounds",
}

PARTS = {
    "risk": {"round": "violation_risk", "once": "estimation_risk", "this round": "this_round"},
    "model": {
        "reward": "reward",
        "cost": "cost",
        "width": "width",
        "norm": "context_norm",
        "log det": "log_det",
        "informative": "informative_rounds",
        "rounds": "rounds",
        "known": "known_outcomes",
        "at refit": "rounds_at_refit",
        "noise": "noise",
        "degrees": "degrees_of_freedom",
        "condition": "condition",
    },
    "group": {
        "benefit": "benefit_expected",
        "rounds": "calibration_rounds",
        "used": "used",
        "from top": "rank_from_top",
        "rank": "rank",
    },
    "reach": {"factor": "factor", "tenth": "tenth_applied"},
    "count": {
        "rounds": "rounds",
        "may exceed": "may_exceed",
        "would exceed": "would_exceed",
        "exceeding": "exceeding",
        "unknown": "unknown",
    },
    "scale": {"played": "played", "largest": "largest", "count rule": "count_rule", "climb limit": "climb_limit"},
    "base": {"setting": "setting", "protocol": "protocol", "fitted at": "fitted_at_round"},
    "start": {"setting": "setting", "share": "share"},
    "bracket": {"low": "low", "high": "high", "floor": "floor", "error": "error"},
}
"""The parts of a certificate, and the numbers in each."""


def certificate_of(facts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """The plain numbers of a certificate, by names of ours; decisions by their number."""
    found = chosen(facts, EVERY) | _part_numbers(facts, ids)
    found["threshold"] = facts["spec"].get("threshold")
    found["resumes"] = [code(each["rule"]) for each in facts["resumed"]]
    found["amendments"] = [
        [each["from_round"], len(each["changed"]), each["keep_learning"], each["begins_phase"]]
        for each in facts.get("amended", ())
    ]
    found["rests on"] = len(facts["assumptions"]) > 0
    for name in ("promise", "limit", "answer", "guard"):
        found[name] = code(found.get(name))
    if isinstance(facts.get("least"), str):
        found["least"] = facts["least"]
        found["costs"] = {
            name: {"threshold": each["threshold"], **_part_numbers(each, ids)} for name, each in facts["costs"].items()
        }
    elif "costs" in facts:
        found["costs"] = {name: {"threshold": each["threshold"]} for name, each in facts["costs"].items()}
    return found


def _part_numbers(facts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    found = chosen(facts, BOUND)
    for part, names in PARTS.items():
        if isinstance(facts.get(part), Mapping):
            found[part] = chosen(facts[part], names)
    if "exceeding" in found.get("count", {}):
        found["count"]["exceeding"] = [ids.index(each) for each in found["count"]["exceeding"]]
    return found


def chosen(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {mine: facts[theirs] for mine, theirs in names.items() if facts.get(theirs) is not None}


# --- tools


def spec_of(fields: Mapping[str, Any]) -> Any:
    from safedial import SafetySpec

    return SafetySpec.from_dict(renamed(fields))


def policy_of(given: Any) -> Any:
    """A policy, of a name or of a mapping with its options."""
    from safedial.rounds.rules import named_policy

    return named_policy(dict(given)) if isinstance(given, Mapping) else given


def features_of(names: Sequence[str]) -> Any:
    from safedial import Features

    return Features(names=tuple(names))


def csv_of(folder: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """A log as a file with one row for each round."""
    rows = zip(*columns.values(), strict=True)
    lines = [
        ",".join(columns),
        *(",".join(repr(each) if isinstance(each, float) else str(each) for each in row) for row in rows),
    ]
    path = Path(folder) / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


DIAL = {"low": 0.0, "high": 20.0, "unit": "mg"}


def _read(folder: Path, columns: Mapping[str, Sequence[Any]], *, bracket: bool, label: str | None = None) -> Any:
    """A log; for a bracket its settings are on a dial, and costs may be missing."""
    from safedial import Dial, read_log

    more: dict[str, Any] = {}
    if bracket:
        more = {"dial": Dial(**DIAL), "needs": ("action",), "also": ("cost",), "label": label}
        more["context_columns"] = ("dose", "weight")
    return read_log(csv_of(folder, columns), **more)


def on_a_dial() -> dict[str, Any]:
    """The dial and the features of a bracket's log."""
    from safedial import Dial

    return {"dial": Dial(**DIAL), "features": features_of(("dose", "weight"))}


FORECAST = {
    "holds": "guarantee_holds",
    "violations": "violations",
    "violations high": "violations_high",
    "rate": "violation_rate",
    "rate low": "rate_low",
    "rate high": "rate_high",
    "promised": "guaranteed_risk",
    "any": "any_violation",
    "share": "reward_share",
    "half reward from": "half_reward_round",
    "attainable": "attainable_share",
    "first dose": "first_dose",
    "last dose": "last_dose",
    "small doses": "small_doses",
    "alarms": "alarms",
    "worst rate": "worst_rate",
    "worst round": "worst_round",
    "first above start": "first_above_start",
}


def plan(policy: Any, spec: Mapping[str, Any], *, baseline: float = 0.0, **more: Any) -> dict[str, Any]:
    """What is forecast in each scenario, and the doses over time in the first."""
    from safedial.tools.planning import plan as forecast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = forecast(policy_of(policy), spec_of(spec), baseline_cost=baseline, engine="numpy", **more)
    first = found.table[0]["scenario"]
    curve = [row for row in found.curves if row["scenario"] == first]
    return {
        "scenarios": [[row.get(theirs) for theirs in FORECAST.values()] for row in found.table],
        "doses": [row["dose"] for row in curve],
        "violations": [row["violations"] for row in curve],
    }


DETAILS = {
    "explained": "explained",
    "without advice": "without_advice",
    "low": "low",
    "high": "high",
    "estimate": "estimate",
    "interval": "interval",
    "bands": "bands",
}
WATCHED = {
    "rounds": "rounds",
    "left out": "left_out",
    "unseen": "unseen",
    "violations": "violations",
    "allowed": "allowed_violations",
    "at the start": "start_rounds",
    "low": "violation_rate_low",
    "high": "violation_rate_high",
    "ranked": "ranked_rounds",
    "alarm": "alarm_round",
    "missing": "missing",
    "start alarm": "start_alarm",
}
STEPS = 6
"""At so many places of a path of evidence it is written down."""


def path_of(evidence: Any) -> list[float | None]:
    """The logarithm of evidence at a few places."""
    values = list(evidence)
    places = [round(step * (len(values) - 1) / STEPS) for step in range(1, STEPS + 1)] if values else []
    return [logarithm(float(values[place])) for place in places]


def _checked(log: Any, spec: Any, **parts: Any) -> dict[str, Any]:
    from safedial import check_log

    _, findings = check_log(log, spec, **parts)
    return {
        code(each.name): [
            code(each.word),
            each.flagged,
            logarithm(each.evidence),
            each.needed,
            path_of(each.curve),
            chosen(each.details, DETAILS),
        ]
        for each in findings
    }


def _watched(log: Any, spec: Any, **parts: Any) -> dict[str, Any]:
    from safedial import watch_log

    found = watch_log(log, spec, **parts)
    told = found.to_dict()
    ends = {f"ln {name}": logarithm(told[name]) for name in ("evidence", "largest_evidence")}
    if "start_evidence" in told:
        ends["ln start evidence"] = logarithm(told["start_evidence"])
    return chosen(told, WATCHED) | ends | {"path": path_of(found.evidence)}


def check(
    folder: Path,
    columns: Mapping[str, Sequence[Any]],
    spec: Mapping[str, Any],
    *,
    policy: Any = None,
    bracket: bool = False,
    reward: bool = False,
) -> dict[str, Any]:
    """What the checks of a log and its monitor find; `reward`: the checks of the reward too."""
    log, stated = _read(folder, columns, bracket=bracket), spec_of(spec)
    parts = ({"policy": policy_of(policy)} if policy else {}) | (on_a_dial() if bracket else {})
    found = {"checks": _checked(log, stated, **parts), "watch": _watched(log, stated, **parts)}
    return found | ({"reward": _checked(log, stated, target="reward", **parts)} if reward else {})


SCORES = {
    "risk": "risk",
    "rounds": "rounds",
    "excesses": "violations",
    "excesses at most": "violations_upper",
    "rate": "rate",
    "rate at most": "rate_upper",
    "low": "low",
    "high": "high",
    "dose": "mean_dose",
    "given": "rounds_given",
    "reward": "reward",
    "reward low": "reward_low",
    "reward high": "reward_high",
    "share": "share",
    "unknown": "unknown",
    "stopped at": "stopped_at",
    "stop": "stop_reason",
}


def _evaluated(found: Any) -> dict[str, Any]:
    """The figures of each policy, its doses in every eighth round, the rounds that exceed, groups and doubts."""
    rows, names = found.rows(exceeding=False), [each.name for each in found.policies]
    doses = {name: [row["dose"] for row in rows if row["policy"] == name] for name in names}
    over = {name: [row for row in rows if row["policy"] == name and row["exceeds"] != "no"] for name in names}
    groups = [row for row in found.groups() if row["column"] in found.rounds.names]
    return {
        "scores": [
            [code(row[each]) if each == "stop_reason" else row[each] for each in SCORES.values()]
            for row in found.table()
        ],
        "doses": [doses[name][::8] for name in names],
        "exceeding": [[[row["round"], code(row["exceeds"])] for row in over[name]] for name in names],
        "groups": [
            [names.index(row["policy"]), row["column"], row["rounds"], row["violations"], row["violations_upper"]]
            + [row[each] for each in ("low", "high", "mean_dose")]
            for row in groups
        ],
        "doubts": sorted([code(each.name), names.index(each.policy), each.rounds] for each in found.doubts),
    }


def evaluate(
    folder: Path,
    columns: Mapping[str, Sequence[Any]],
    policies: Sequence[Any],
    spec: Mapping[str, Any],
    *,
    bracket: bool = False,
    replay: bool = False,
) -> dict[str, Any]:
    """What policies would have done on a log; `replay`: by the fast engine, which knows no alarms."""
    from safedial import evaluate as played

    log = csv_of(folder, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [policy_of(each) for each in policies]
        more = (on_a_dial() if bracket else {}) | {"engine": "replay" if replay else "agent"}
        return _evaluated(played(log, given, spec=spec_of(spec), **more))


def export(live: LiveStudy, folder: Path, policies: Sequence[Any]) -> dict[str, Any]:
    """What the tools say of a study: of its export as a log, of the study itself, and of its whole log as a file."""
    from safedial import evaluate as played
    from safedial import read_log

    rules, table, whole = live.study.spec.rules, Path(folder) / "export.csv", Path(folder) / "export.jsonl"
    live.study.export(table)
    live.study.export(whole)
    several = rules.spec.costs is not None
    costs = [f"cost_{name}" for name in rules.spec.costs] if several else []
    bracket = rules.policy.name == "hp_shield"
    parts: dict[str, Any] = {"dose": rules.dose}
    if rules.spec.guarantee != "certified":
        parts["policy"] = rules.policy
    more: dict[str, Any] = {}
    if bracket:
        parts |= {"dial": rules.dial, "features": rules.features}
        proposals = ["proposal"] if rules.policy.options["base"] == "proposal" else []
        more = {"also": [*(costs or ["cost"]), *proposals], "needs": ("action",)}
    log = read_log(table, features=rules.features, dial=rules.dial, **more)
    found = {"checks": _checked(log, rules.spec, **parts), "watch": _watched(log, rules.spec, **parts)}
    given = [policy_of(each) for each in policies] or None
    found["study"] = _evaluated(played(live.study, given))
    found["file"] = _evaluated(played(whole, given))
    assert found["study"] == found["file"]
    return {
        "rows": len(log),
        "learned from": log.learned,
        **{name: found[name] for name in ("checks", "watch", "study")},
    }


def calibrate(folder: Path, columns: Mapping[str, Sequence[Any]], **more: Any) -> dict[str, Any]:
    """Fitted curves, what they rest on, and the constants that are proposed. Names that begin with ~ are compared at
    `study_numbers.FITTED`, because an optimiser found what they hold.
    """
    from safedial import calibrate as fitted

    found = fitted(_read(folder, columns, bracket=False), **more)
    return {
        "curves": {name: _fitted_curve(each) for name, each in found.curves.items()},
        "proposals": {name: each.value for name, each in found.proposals.items()},
        "seen": list(found.seen),
        "guided": [found.confounding.flagged, logarithm(found.confounding.evidence)],
        "allowed": {name: [each.best, *each.band, *each.range] for name, each in found.allowed.items()},
        "refused": bool(found.problem),
    }


def _fitted_curve(found: Any) -> dict[str, Any]:
    doses = [0.1, 0.3, 0.6, 1.0]
    return {
        "family": code(found.fit.family),
        "rivals": [code(each) for each in found.rivals],
        "~effect": [float(found.fit.curve.effect(each)) for each in doses],
        "~coefficients": [float(each) for each in found.fit.coef],
        "~deviation": float(found.fit.deviation),
        "~losses": {code(name): [row["free"], row["loss"]] for name, row in found.table.items()},
        "~band": [[float(end[place]) for place in (4, 12, 24, 40)] for end in (found.low, found.high)],
        "~error": float(found.error),
    }


def calibrate_bracket(
    folder: Path, columns: Mapping[str, Sequence[Any]], *, label: str | None = None, **more: Any
) -> dict[str, Any]:
    """A proposed bracket and start, and the slopes behind it."""
    from safedial import Dial
    from safedial import calibrate_bracket as fitted

    log = _read(folder, columns, bracket=True, label=label)
    log = replace(log, cost=log.extra["cost"])
    found = fitted(log, unit=label, dial=Dial(**DIAL), **more)
    growth, slopes = found.growth, found.slopes
    return {
        "bracket": None
        if growth is None
        else [code(growth.name), *(growth.parameters[end] for end in ("low", "high"))],
        "floor": None if growth is None else growth.parameters.get("floor"),
        "start": found.start,
        "proposals": {name: each.value for name, each in found.proposals.items()},
        "slope": [slopes.whole.estimate, *slopes.whole.interval(), slopes.spread],
        "bands": [[each.start, each.end, each.estimate, *each.interval()] for each in slopes.bands],
        "guided": [found.confounding.flagged, logarithm(found.confounding.evidence)],
        "ranges": {name: list(ends) for name, ends in found.ranges.items()},
        "refused": bool(found.problem),
    }


OFFERED = {
    "share": "share",
    "share low": "share_low",
    "share high": "share_high",
    "study low": "study_low",
    "study high": "study_high",
    "attainable": "attainable_share",
    "rate": "rate",
    "rate low": "rate_low",
    "rate high": "rate_high",
}
STATED = ("threshold", "violation_risk", "estimation_risk", "cost_noise", "coefficient_bound", "ridge")


def choose(folder: Path, pilot: Mapping[str, Sequence[Any]] | None, **more: Any) -> dict[str, Any]:
    """The policies that are offered, the best first, with what each states, rests on and would earn."""
    from safedial import choose as ranked
    from safedial.model.brackets import growth_from_dict
    from safedial.model.dose import curve_from_dict

    if more.get("costs"):
        more["costs"] = dict(
            spec_of(
                {
                    "violation_risk": 0.05,
                    "estimation_risk": 0.01,
                    "reward_noise": 0.1,
                    "coefficient_bound": 1.0,
                    "context_bound": 1.0,
                    "costs": more["costs"],
                }
            ).costs
        )
    if more.get("growth"):
        more["growth"] = growth_from_dict(more["growth"])
    if more.get("dose"):
        more["dose"] = curve_from_dict(more["dose"])
    log = None if pilot is None else _read(folder, pilot, bracket=False)
    found = ranked(log, **more)
    offers = []
    for each in found.offers:
        told = {} if each.forecast is None else each.forecast._asdict()
        options = [code(each.policy.options.get(name)) for name in ("radius", "form", "guarantee")]
        stated = [getattr(each.spec, name) for name in STATED]
        offers.append([
            code(each.policy.name), options, [code(name) for name in each.rests], code(each.spec.margin), stated,
            [told.get(name) for name in OFFERED.values()],
        ])  # fmt: skip
    return {
        "offers": offers,
        "refused": sorted(code(name) for name in found.refused),
        "against": sorted(code(name) for name in found.user.against),
        "constants": dict(sorted(found.user.constants.items())),
    }
