"""The certificate of a decision, and its explanation in plain words.

It holds every number that led to the action, so that a person can recompute it with a pocket calculator, and every
assumption behind the guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.policies import shown_spec
from safedial.policies.policy import Terms
from safedial.rounds.decision import LIMITS, Certificate, Decision
from safedial.rounds.rules import Rules
from safedial.version import __version__

OWN = "policy {} is your own: that its rule keeps the guarantee is your proof, not one of this package"


def statement(decision: Decision, terms: Terms) -> str:
    """The guarantee in one sentence, or why there is none."""
    if decision.fallback_reason:
        return f"none: {LIMITS[decision.fallback_reason]}{terms.note}"
    return terms.statement


def certificate(decision: Decision, *, shared: bool = False) -> Certificate:
    """The certificate as plain values: the model, the bounds, the choice and the assumptions. If it is `shared`, its
    rules are those of all certificates, to be read only.
    """
    terms, policy = decision.terms, decision.rules.policy
    facts = Certificate(_common(decision, terms, shared), **terms.facts)
    if facts["holds"] and policy.is_own:
        facts["assumptions"] = [*facts["assumptions"], OWN.format(policy.name)]
    return facts


def shown_rules(rules: Rules) -> dict[str, Any]:
    """The rules as all certificates under them state them."""
    written = rules.to_dict()
    shown = {"policy": written["policy"], "spec": shown_spec(rules.policy, written["spec"])}
    shown |= {"policy_reason": rules.policy_reason}
    shown |= {name: written[name] for name in ("dim", "dose", "dial", "features")}
    return shown


def _copied(value: Any) -> Any:
    """A copy of plain values: whoever edits one certificate changes no other."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _common(decision: Decision, terms: Terms, shared: bool) -> dict[str, Any]:
    """The part that all guarantees share."""
    rules, guarantee = decision.rules, decision.guarantee
    return {
        "guarantee": guarantee,
        "statement": statement(decision, terms),
        "holds": GUARANTEES[guarantee].proved,
        "round": decision.round,
        "context": decision.context.tolist(),
        "extrapolated": list(decision.extrapolated),
        **(rules.shown if shared else _copied(rules.shown)),
        "baseline_cost": decision.baseline_cost,
        "safe_intensity": decision.safe_intensity,
        "reward_index": decision.found.index,
        "limit": decision.limit,
        "intensity": decision.intensity,
        "action": decision.action,
        "safe_action": decision.safe_action,
        **proposed(decision),
        "fallback_action": rules.fallback_action,
        "version": __version__,
        "assumptions": list(terms.assumptions),
    }


def _arithmetic(decision: Decision, facts: dict[str, Any]) -> Sequence[str]:
    """How the numbers gave the largest setting. A study's certificate names rounds by their ids."""
    decided, policy = decision.plain, decision.rules.policy
    if policy.names_rounds:
        decided = decided._replace(numbers={**decided.numbers, "exceeding": facts["count"]["exceeding"]})
    return policy.terms(decided).arithmetic


def proposed(decision: Decision) -> dict[str, Any]:
    """The proposal and what became of it, where there was one."""
    if decision.proposal is None:
        return {}
    return {"proposal": decision.proposal, "proposal_answer": decision.proposal_answer}


def _proposal_words(decision: Decision) -> list[str]:
    """The proposal and what became of it; the limit, on the line after, says why."""
    if decision.proposal is None:
        return []
    text, answer = decision.rules.dial.text, decision.proposal_answer
    to = "" if answer == "granted" else f" to {text(decision.action)}"
    level = ", the dial's level below it" if answer == "lowered" and decision.limit == "request" else ""
    return [f"  Proposal: {text(decision.proposal)}, {answer}{to}{level}."]


def explain(decision: Decision, facts: dict[str, Any] | None = None) -> str:
    """The advice, what set it, the guarantee, the arithmetic, the risks and the assumptions, in plain words.

    `facts` is the decision's certificate if it holds more than `certificate` gives, as a study's does.
    """
    dial, facts = decision.rules.dial, facts or certificate(decision)
    guarantee = GUARANTEES[decision.rules.policy.guarantee]
    largest = "no setting is certified"
    if decision.safe_action is not None:
        largest = f"the largest {guarantee.word} one is {dial.text(decision.safe_action)}"
    head = f"Round {decision.round}: set the dial to {dial.text(decision.action)} "
    lines = [head + f"(intensity {rounded_down(decision.intensity)}); {largest}."]
    lines += _proposal_words(decision)
    if decision.extrapolated:
        names = ", ".join(decision.extrapolated)
        lines.append(f"  WARNING: {names} lies outside the stated range; the caller allowed this.")
    if decision.fallback_reason:
        lines.append("  WARNING: this round has no guarantee; the fallback is advised.")
        return "\n".join([*lines, f"  Guarantee: {facts['statement']}."])
    lines.append(f"  What set it: {LIMITS[decision.limit]}.")
    lines.append(f"  Guarantee: {facts['statement']}.")
    lines += [f"  {line}" for line in _arithmetic(decision, facts)]
    if decision.rules.policy.reads_reward:
        lines.append(
            f"  Expected benefit: the reward index is {facts['reward_index']:.4g} ({facts['policy']['name']})."
        )
    if guarantee.from_constants and "risk" in facts:
        learned = "margin_risk" in facts["risk"]
        lines.append(
            f"  Risks spent: {facts['risk']['this_round']:.3g} on noise in this round, "
            f"{facts['risk']['estimation_risk']:.3g} once, for all rounds, on the confidence set"
            + (f", {facts['risk']['margin_risk']:.3g} on learning the noise." if learned else ".")
        )
    lines.append(f"  Policy: {facts['policy_reason']}.")
    if GUARANTEES[decision.guarantee].claimed:
        lines += ["  This holds if:", *(f"    - {line}" for line in facts["assumptions"])]
    return "\n".join(lines)
