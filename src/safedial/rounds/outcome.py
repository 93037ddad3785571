"""The life of a round: what is kept while it is open, what is learned from its outcome, and whether that counts against
the guarantee. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.estimate import sample_weight
from safedial.bounds.margin import round_risk, tail_factor
from safedial.errors import InvalidInput, refusal, require
from safedial.model.costs import exceeded, thresholds
from safedial.model.dial import real, reals
from safedial.model.dose import DoseCurve
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.rounds.rules import Rules

STATUSES = ("open", "known", "void", "expired", "nothing given", "throttled", "corrected", "imported")


def next_status(before: str, status: str, *, throttled: bool = False, given: bool = True) -> str:
    """The status of a round after an event: "nothing given" if the decision advised no dose, "throttled" if the setting
    was lowered because of the outcome. An expired round can still become known, a void one cannot.

    >>> next_status("", "open"), next_status("", "open", given=False), next_status("", "imported")
    ('open', 'nothing given', 'imported')
    >>> next_status("open", "known"), next_status("known", "corrected"), next_status("open", "known", throttled=True)
    ('known', 'corrected', 'throttled')
    >>> next_status("nothing given", "known"), next_status("known", "void"), next_status("void", "known")
    ('nothing given', 'void', 'void')
    """
    if status in ("void", "expired"):
        return status
    if before in ("void", "nothing given"):  # a report does not change these
        return before
    if not given:
        return "nothing given"
    return "throttled" if throttled else status


class Asked(NamedTuple):
    """A request for a decision: the context, its norm, the features outside their ranges, the known cost of doing
    nothing, and the proposal that came with it.
    """

    vector: Array
    norm: float
    extrapolated: tuple[str, ...] = ()
    baseline_cost: float = 0.0
    proposal: float | None = None


class Round(NamedTuple):
    """A decided round that waits for its outcome.

    `place` is its place in the policy's state; `watched` says whether the monitor counts it. A save file keeps the
    first five fields. A study also keeps the context, its norm, the time of the decision and the first hexadecimal
    digits of its event's hash (`tag`). `given`: the advice has an effect.
    """

    number: int
    place: Any
    action: float
    baseline_cost: float
    watched: bool
    context: Any = None
    norm: float = 0.0
    at: int = 0
    tag: str = ""
    given: bool = True


# --- What is learned from an outcome

RESCALING = 1e-12
"""What rounding, the dose curve's included, may add to a rescaled cost, relatively. It is subtracted, so that rounding
never makes a violation."""


class Outcome(NamedTuple):
    """The report of a round: the applied setting, the measured reward and cost, and the known baseline cost.

    Where the spec states several costs, `cost` is a mapping with all of them, None or NaN where one is not known.
    """

    action: Any
    reward: Any
    cost: Any
    baseline_cost: Any = 0.0


class Sample(NamedTuple):
    """R/g_r and C/g_c with their weight (0: nothing to learn), and what the monitor needs.

    Where the spec states several costs, `measured` has them by name, NaN where one is not known; `cost` is 0, or under
    a certified guarantee the sample of each known cost, by name.
    """

    reward: float
    cost: Any
    weight: float
    applied: float
    measured: Any
    baseline_cost: float
    intensity: float = 0.0

    @property
    def unknown(self) -> bool:
        """Whether a cost is not known."""
        measured = self.measured
        return any(map(math.isnan, measured.values())) if type(measured) is dict else measured != measured


def for_the_watch(rules: Rules, applied: float, measured: Any, baseline_cost: float) -> Sample:
    """A sample that teaches nothing, and tells the watch a cost, or each known one of several (`read_cost`)."""
    sample = Sample(0.0, 0.0, 0.0, applied, measured, baseline_cost)
    if rules.parts is None:
        return sample
    known = {name: cost for name, cost in measured.items() if not math.isnan(cost)}
    return sample._replace(cost={name: sample._replace(measured=cost) for name, cost in known.items()})


def stated_reward(rules: Rules, reward: Any) -> Any:
    """A reported reward; 0 where none is reported and the policy does not choose by it."""
    if reward is None and rules.policy.reads_reward:
        words = f"must be reported: {rules.policy.name} learns from it which settings are worth giving"
        raise refusal("reward", reward, words, code="not_finite")
    return 0.0 if reward is None else reward


def normalise(rules: Rules, outcome: Outcome, context: Any = None) -> Sample:
    """Check an outcome and divide it by its intensities; `context` is for a noise scale that depends on it."""
    reward = stated_reward(rules, outcome.reward)
    given = {"action": outcome.action, "reward": reward, "baseline_cost": outcome.baseline_cost}
    (setting, gain, baseline), harm = reals(given), read_cost(rules.spec, outcome.cost)
    if rules.parts is not None:
        return _several(rules, outcome, harm, context)
    dial, dose = rules.dial, rules.dose
    if not dial.low <= setting <= dial.high:
        way_out = "report what was applied, in the dial's units"
        raise refusal("action", setting, f"must lie between {dial.low:g} and {dial.high:g}", way_out)
    share = setting if rules.is_identity else dial.action(setting)
    cost_intensity = share if rules.is_identity else float(dose.cost.effect(share))
    reward_intensity = share if dose.reward.name == "identity" else float(dose.reward.effect(share))
    weight = float(sample_weight(rules.spec, reward_intensity, cost_intensity, context))
    if rules.policy.zero_one:
        require(harm in (0.0, 1.0), "cost", harm, "must be 0 or 1 for this policy's class of costs, or its bracket")
        require(baseline == 0.0, "baseline_cost", baseline, "must be 0 where costs are 0 or 1")
    if weight <= 0.0 or not rules.policy.learns:
        return Sample(0.0, 0.0, 0.0, setting, harm, baseline)
    return Sample(
        _quotient("reward", gain, reward_intensity, weight),
        0.0 if rules.spec.costs else _quotient("cost", harm - baseline, cost_intensity, weight),
        weight,
        setting,
        harm,
        baseline,
        cost_intensity,
    )


def check_reported(policy: str, context: Any, kept: Any, *, round: int, decisions: int, history: bool = True) -> None:
    """The context must be the one `kept` for its round, if any is; round 0 is history, allowed only before the first
    decision, where the policy learns from `history` at all.
    """
    rule = "is reported though no round is open; was it reported already?"
    way_out = "give history before the first decision" if history else f"{policy} learns from rounds that it decided"
    require(round > 0 or (history and decisions == 0), "context", context.tolist(), rule, way_out)
    if kept is not None and not np.array_equal(kept, context):
        raise InvalidInput(
            f"context: differs from that of round {round} (the oldest open round, or the one you named), and "
            f"{policy} must know the round; report the Decision itself, or give round=..."
        )


def check_past(rules: Rules, sample: Sample) -> None:
    """Refuse the outcome of a round from before the first decision, where passing over it could be a selection.

    HP-Student needs that no outcome decides which rounds get nothing; for its anytime guarantee it is enough that this
    is decided before the round's own outcome.
    """
    rule = "must be known for a round before the first decision: leaving out rounds with feared outcomes would mislead"
    way_out = "leave the round out if the reason has nothing to do with its outcome"
    require(not sample.unknown, "cost", sample.measured, rule, way_out)
    excluded = sample.baseline_cost >= min(thresholds(rules.spec).values())  # with several it is 0
    given = sample.weight > 0.0 or excluded
    if not given and not rules.policy.allows_past_zeros:
        rule = "was given, in a round before the first decision: which rounds get nothing must not depend on outcomes"
        way_out = (
            "leave such rounds out if contexts alone decided it; else leave out the whole past, since the rounds after "
            "the last of them are a selection too: those in which nobody withheld anything"
        )
        raise refusal("action", sample.applied, rule, way_out)


def _several(rules: Rules, outcome: Outcome, harms: dict[str, float], context: Any) -> Sample:
    """Each known cost under its own rules. Where one is not known, the round teaches nothing."""
    require(outcome.baseline_cost == 0.0, "baseline_cost", outcome.baseline_cost, "must be 0 for several costs")
    parts = {
        name: normalise(part, outcome._replace(cost=harms[name]), context)
        for name, part in rules.parts.items()
        if not math.isnan(harms[name])
    }
    if len(parts) < len(harms):
        return Sample(0.0, parts, 0.0, float(outcome.action), harms, 0.0)
    return joined(parts)


def joined(parts: dict[str, Sample]) -> Sample:
    """The sample of several costs, all known, from the sample of each."""
    samples, harms = list(parts.values()), {name: part.measured for name, part in parts.items()}
    least = min(samples, key=lambda part: part.intensity)
    return Sample(samples[0].reward, parts, least.weight, least.applied, harms, 0.0, least.intensity)


def read_cost(spec: SafetySpec, given: Any) -> Any:
    """One measured cost, or each of the spec's costs by name."""
    costs = spec.costs
    if costs is None:
        if type(given) is not float and isinstance(given, Mapping):
            raise refusal("cost", given, "must be one number: the spec states one cost")
        return real("cost", given)
    names = ", ".join(costs)
    require(isinstance(given, Mapping), "cost", given, f"must be a mapping with {names}: the spec states costs by name")
    unknown = sorted(set(given) - set(costs), key=str)
    require(not unknown, "cost", unknown, "is unknown", f"the spec's costs are {names}")
    missing = sorted(set(costs) - set(given))
    require(not missing, "cost", missing, "is missing", "report every cost, None where it is not known")
    return {name: _known(f"cost[{name!r}]", given[name]) for name in costs}


def written_cost(measured: Any) -> Any:
    """What `read_cost` read as plain values, None where a cost is not known."""
    if not isinstance(measured, dict):
        return measured
    return {name: None if math.isnan(value) else value for name, value in sorted(measured.items())}


def _known(name: str, value: Any) -> float:
    """A number, or NaN for one that is not known."""
    number = math.nan if value is None else real(name, value, finite=False)
    require(not math.isinf(number), name, value, "must be a finite number, or None", code="not_finite")
    return number


def counted(spec: SafetySpec, sample: Sample, round: float) -> tuple[bool, float] | None:
    """(violated, allowed risk) for the monitor, or None if the round was not certified and so proves nothing."""
    risk = allowed_risk(spec, sample.baseline_cost, round)
    return None if risk is None else (sample.measured > counted_from(spec, round), risk)


def allowed_risk(spec: SafetySpec, baseline_cost: float, round: float) -> float | None:
    """The allowed chance that a certified round exceeds `counted_from`; None if no setting was certified.

    If τ limits the true cost and the sensor errs, a measured cost above τ + qσ counts: it needs a true violation
    (probability ≤ δ_t) or a sensor error above qσ (also ≤ δ_t), so the allowed risk doubles.
    """
    risk = float(round_risk(spec, round))
    sensor_margin = spec.cost_sensor_noise and tail_factor(spec, round) * spec.cost_sensor_noise
    room = spec.threshold - baseline_cost
    if spec.threshold_on == "measured" or sensor_margin == 0.0:
        return risk if room >= sensor_margin else None
    return min(2.0 * risk, 1.0) if room >= 0.0 else None


def counted_from(spec: SafetySpec, round: float) -> float:
    """The measured cost above which a round counts against the guarantee."""
    if spec.threshold_on == "measured":
        return spec.threshold
    return spec.threshold + tail_factor(spec, round) * spec.cost_sensor_noise


def cost_at_advice(rules: Rules, sample: Sample, advised: float) -> float | None:
    """The measured cost, or, if more was applied than advised, the cost that the advised setting would have had.

    With C = b₀ + g(a)(c + ξ) the cost at the advice a* is b₀ + (C − b₀)·g(a*)/g(a). It is known exactly, whoever chose
    a and for whatever reason, so it exceeds τ with probability ≤ δ, as if the advice had been followed. A cost at or
    below the advice needs no rescaling: g increases, so an excess there is an excess at the advice. (Rescaling shrinks
    a sensor's error, which only helps if the override used nothing about it.) None if the model does not say: costs
    that are 0 or 1, noise that does not scale with the intensity, advice of no dose, or a curve that is not exact.
    """
    if sample.applied <= advised:
        return sample.measured
    if rules.policy.zero_one or rules.spec.noise_scale is not None or not rules.policy.exact_dose:
        return None
    dial, above = rules.dial, sample.measured - sample.baseline_cost
    rescaled = rescaled_cost(rules.dose.cost, above, dial.action(sample.applied), dial.action(advised))
    return None if rescaled is None else sample.baseline_cost + rescaled


def is_over(rules: Rules, cost: Any) -> bool:
    """Whether a measured cost is beyond its limit, whatever was applied."""
    return bool(exceeded(rules.spec, cost, rules.policy.direction))


def exceeds(rules: Rules, sample: Sample, advised: float) -> bool:
    """Whether an outcome is a violation, for people who count: at the advised setting, or below."""
    if rules.parts is not None:
        return any(exceeds(rules.parts[name], part, advised) for name, part in sample.cost.items())
    cost = cost_at_advice(rules, sample, advised)
    return cost is not None and is_over(rules, cost)


def judges(rules: Rules, sample: Sample, advised: float) -> bool:
    """Whether an outcome shows if the guarantee was kept."""
    if rules.parts is not None:
        return all(judges(rules.parts[name], part, advised) for name, part in sample.cost.items())
    known = cost_at_advice(rules, sample, advised) is not None
    return known and (not sample.unknown or exceeds(rules, sample, advised))


def rescaled_cost(curve: DoseCurve, cost: float, applied: float, advised: float) -> float | None:
    """A lower bound on what a cost at `applied` would have been at the lower `advised`; None if that has no effect."""
    given, meant = float(curve.effect(applied)), float(curve.effect(advised))
    if meant <= 0.0:
        return None
    rescaled = cost * (meant / given)
    return rescaled - RESCALING * abs(rescaled)


def _quotient(name: str, value: float, intensity: float, weight: float) -> float:
    """value/intensity, refused if it or its weighted square is not finite."""
    quotient = value / intensity
    if not math.isfinite(weight * quotient * quotient):
        raise InvalidInput(
            f"{name} = {value!r}: divided by the intensity {intensity!r} it is too large for a float; "
            "check the outcome and its unit",
            "not_finite",
        )
    return quotient
