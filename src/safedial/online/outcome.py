"""What an outcome teaches, and whether it counts against the promise. Pure functions; nothing is changed here."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from safedial.core.estimate import sample_weight
from safedial.core.margin import round_risk, tail_factor
from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput, require
from safedial.online.decision import Rules
from safedial.online.units import real


class Sample(NamedTuple):
    """R/g_r and C/g_c with their weight (0: nothing to learn), and what the monitor needs."""

    reward: float
    cost: float
    weight: float
    applied: float
    measured: float
    baseline_cost: float
    intensity: float = 0.0


def normalise(rules: Rules, action: Any, reward: Any, cost: Any, baseline_cost: Any, context: Any = None) -> Sample:
    """Check one outcome and divide it by the intensities at which it arose; `context` is for a noise scale with it."""
    setting, gain, harm = real("action", action), real("reward", reward), real("cost", cost)
    baseline = real("baseline_cost", baseline_cost)
    dial, dose = rules.dial, rules.dose
    require(
        dial.low <= setting <= dial.high,
        "action",
        setting,
        f"must lie between {dial.low:g} and {dial.high:g}",
        "report what was applied, in the dial's units",
    )
    share = dial.action(setting)
    reward_intensity, cost_intensity = float(dose.reward.effect(share)), float(dose.cost.effect(share))
    weight = float(sample_weight(rules.spec, reward_intensity, cost_intensity, context))
    if rules.policy.binary_cost:
        require(harm in (0.0, 1.0), "cost", harm, "must be 0 or 1 for this policy's class of costs")
        require(baseline == 0.0, "baseline_cost", baseline, "must be 0 where costs are 0 or 1")
    if weight <= 0.0 or not rules.policy.learns:
        return Sample(0.0, 0.0, 0.0, setting, harm, baseline)
    return Sample(
        _quotient("reward", gain, reward_intensity, weight),
        _quotient("cost", harm - baseline, cost_intensity, weight),
        weight,
        setting,
        harm,
        baseline,
        cost_intensity,
    )


def counted(spec: SafetySpec, sample: Sample, round: float) -> tuple[bool, float] | None:
    """(violated, allowed risk) for the monitor, or None where the round was not certified and proves nothing.

    Where τ limits the true cost and the sensor errs, a measured cost above τ + qσ counts: it needs a true violation
    (probability ≤ δ_t) or a sensor error above qσ (≤ δ_t as well), so the allowed risk doubles.
    """
    risk = round_risk(spec, round)
    sensor_margin = tail_factor(spec, round) * spec.cost_sensor_noise
    room = spec.threshold - sample.baseline_cost
    if spec.threshold_on == "measured" or sensor_margin == 0.0:
        return (sample.measured > spec.threshold, risk) if room >= sensor_margin else None
    return (sample.measured > spec.threshold + sensor_margin, min(2.0 * risk, 0.5)) if room >= 0.0 else None


def _quotient(name: str, value: float, intensity: float, weight: float) -> float:
    """value/intensity, refused where it, or its weighted square, is not a finite number."""
    quotient = value / intensity
    if not math.isfinite(weight * quotient * quotient):
        raise InvalidInput(
            f"{name} = {value!r}: divided by the intensity {intensity!r} it is too large for a float; "
            "check the outcome and its unit",
            "not_finite",
        )
    return quotient
