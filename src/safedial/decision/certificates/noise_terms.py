"""How noise limits a certified dose: the assumptions about it, and the division that gives the dose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.core.margin import margin_assumptions, tail_factor
from safedial.core.spec import SafetySpec
from safedial.decision.certificates.shared_terms import part_given, room
from safedial.decision.units import rounded_down

if TYPE_CHECKING:
    from safedial.decision.decision import Decision

SCALED = (
    "the noise of a dose of intensity z at context x is h(z, x) times the sub-Gaussian noise; h is exact and never "
    "falls as z grows: {}"
)


def noise_assumptions(spec: SafetySpec) -> list[str]:
    """What the spec states about the noise beyond its constants: sensors, the margin, the scale."""
    kind = "of any kind, and" if spec.sensor_dependent else "independent of the outcome's own noise given the past, and"
    sensor = (
        f"sensor error is {kind} sub-Gaussian with constants {spec.reward_sensor_noise:g} (reward) and "
        f"{spec.cost_sensor_noise:g} (cost)"
    )
    return [
        *([sensor] if spec.reward_sensor_noise or spec.cost_sensor_noise else []),
        *margin_assumptions(spec),
        *([SCALED.format(spec.noise_scale.to_dict())] if spec.noise_scale else []),
    ]


def sensor_margin(spec: SafetySpec, round: float) -> float:
    """The allowance for sensor error; 0 unless the threshold is on the measured cost."""
    return tail_factor(spec, round) * spec.cost_sensor_noise if spec.threshold_on == "measured" else 0.0


def division(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """How the bound and the margins gave the largest safe intensity, and what share of it is given."""
    spec, upper, margin, sensor = decision.rules.spec, *(facts[name] for name in PARTS)
    left, safe = room(decision), rounded_down(facts["safe_intensity"])
    if sensor and spec.sensor_dependent:
        line = f"The largest intensity: ({left} - {sensor:.4g}) / ({upper:.4g} + {margin:.4g}), at most 1: {safe}."
    elif sensor:
        both = f"sqrt(({margin:.4g} z)^2 + {sensor:.4g}^2)"
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {both} <= {left}: {safe}."
    elif spec.noise_scale:
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {margin:.4g} h(z, x) <= {left}: {safe}."
    elif facts["safe_intensity"] >= 1.0:
        line = f"The largest intensity: 1, since {upper:.4g} + noise margin {margin:.4g} is at most {left}."
    else:
        line = f"The largest intensity: {left} / ({upper:.4g} + noise margin {margin:.4g}) = {safe}."
    return [line, *part_given(decision, facts)]


PARTS = ("cost_upper", "noise_margin", "sensor_margin")
