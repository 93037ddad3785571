"""The certificate of a decision with several costs under a certified guarantee: each cost's own, and their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.rounds.decision import setting_of

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

UNION = (
    "each cost is certified by itself with its own share of the risks; the chance that any exceeds is at most their "
    "sum (union bound), however the costs depend on each other"
)


def event(rules: Rules) -> str:
    """What must not happen: "heat > 2 C or load > 5"."""
    each = (f"{name} > {cost.threshold:g} {cost.unit}".rstrip() for name, cost in (rules.spec.costs or {}).items())
    return " or ".join(each)


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the risks in all, and under "costs" what each cost's certificate holds."""
    costs = {name: _part_facts(decision, name) for name in decision.rules.parts}
    risks = [told["risk"] for told in costs.values()]
    stated, least = decision.rules.spec.costs or {}, costs[decision.prediction.least]
    return {
        "risk": {name: sum(risk[name] for risk in risks) for name in risks[0]},
        "least": decision.prediction.least,
        "cost_upper": least["cost_upper"],
        "costs": {name: {**stated[name].to_dict(), **told} for name, told in costs.items()},
    }


def arithmetic(decision: Decision, told: dict[str, Any]) -> list[str]:
    """Each cost's arithmetic, and the smallest of the largest settings."""
    lines, settings = [], []
    for name, part in parts_of(decision).items():
        own = {**told["costs"][name], "limit": told["limit"]}
        lines += [f"{name}: {line}" for line in part.rules.learner.arithmetic(part, own)]
        setting = setting_of(part.rules, part.choice.safe.intensity)
        settings.append(f"{part.rules.dial.text(setting)} ({name})")
    return [*lines, f"The smallest of the largest settings counts: {', '.join(settings)}."]


def _part_facts(decision: Decision, name: str) -> dict[str, Any]:
    part = parts_of(decision)[name]
    return {"safe_intensity": part.choice.safe.intensity, **part.rules.learner.facts(part)}


def parts_of(decision: Decision) -> dict[str, Decision]:
    """The decision as each cost's own rules made it."""
    seen = decision.prediction
    return {
        name: decision._replace(rules=rules, prediction=seen.predictions[name], choice=seen.choices[name])
        for name, rules in decision.rules.parts.items()
    }


def assumptions(rules: Rules) -> list[str]:
    """What all costs assume, once, and what each assumes by itself, with its name."""
    return joined({name: part.learner.fixed_assumptions(part) for name, part in rules.parts.items()})


def joined(each: dict[str, list[str]]) -> list[str]:
    """The assumptions of each cost, by name: those of all, those of one, and why they suffice together."""
    lists = list(each.values())
    shared = [line for line in lists[0] if all(line in lines for lines in lists)]
    own = [f"{name}: {line}" for name, lines in each.items() for line in lines if line not in shared]
    return [*shared, *own, UNION]
