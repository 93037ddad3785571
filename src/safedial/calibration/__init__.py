"""The constants that a promise rests on, from pilot or published dose–response data.

    log ─► families ─► fit, cross-validation, bootstrap ─► g with its uncertainty
                              └─► residuals, coefficients, contexts ─► κ_r, κ_c, S, L, each with its reason ─► spec file

What comes out is a proposal for a person to judge. It is in-sample: use it for rounds to come, never to certify the log
it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedial.calibration.choose import FOLDS, Chosen, choose_curve
from safedial.calibration.constants import (
    Proposal,
    propose_coefficient_bound,
    propose_context_bound,
    propose_noise,
)
from safedial.calibration.families import families
from safedial.calibration.fit import Data, Noise
from safedial.core.dose import Dose
from safedial.core.spec import VIOLATION_SHARE, SafetySpec
from safedial.errors import require
from safedial.logs import Log
from safedial.specfile import SpecFile

LEAST_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Curves by outcome, and the proposals by name of the spec's field."""

    curves: dict[str, Chosen]
    data: dict[str, Data] = field(repr=False)
    proposals: dict[str, Proposal]
    noise: Noise
    dim: int
    seen: tuple[float, float]
    """The smallest and the largest positive dose of the log."""

    @property
    def dose(self) -> Dose:
        cost = self.curves["cost"].fit.curve
        return Dose(self.curves["reward"].fit.curve if "reward" in self.curves else cost, cost)

    def spec_file(self, *, threshold: float, total_risk: float, **parts: Any) -> SpecFile:
        """The proposals as a spec file; the threshold and the risk are yours to state."""
        require(0.0 < total_risk < 1.0, "total_risk", total_risk, "must lie strictly between 0 and 1", "0.05 is 5 %")
        constants: dict[str, Any] = {name: proposal.value for name, proposal in self.proposals.items()}
        violation = round(VIOLATION_SHARE * total_risk, 12)
        risks = {"violation_risk": violation, "estimation_risk": round(total_risk - violation, 12)}
        spec = SafetySpec(threshold=threshold, **risks, **constants)
        return SpecFile(spec=spec, dose=self.dose, dim=self.dim, policy={"name": "hp_probe"}, **parts)

    def notes(self) -> dict[str, str]:
        """The reasons, as comments of the spec file."""
        words = [f"{name}: {self.words(name)}" for name in self.curves]
        top = "Proposed by safedial calibrate, for a person to judge; it is made from data and proves nothing.\n"
        return {"": top + "\n".join(words)} | {name: each.reason for name, each in self.proposals.items()}

    def words(self, name: str) -> str:
        """What was fitted, in a sentence."""
        chosen = self.curves[name]
        numbers = ", ".join(
            f"{key} {value:.3g}" for key, value in chosen.fit.curve.parameters.items() if isinstance(value, float)
        )
        low, high = self.seen
        edge = (
            f" Doses outside {low:.3g} to {high:.3g} were never given: there the curve is a guess." if high < 1 else ""
        )
        shape = f"curve {chosen.fit.family}" + (f" ({numbers})" if numbers else "")
        return (
            f"{shape}, the simplest within one standard error of the best in {FOLDS}-fold cross-validation; "
            f"{_uncertainty(chosen)}.{edge}"
        )


def _uncertainty(chosen: Chosen) -> str:
    if not chosen.error:
        return "it was not compared with any other, so how far it is off is not known"
    words = f"at the doses used it is uncertain by {chosen.error:.1%}"
    return f"{words} (95 %{', and what ' + ', '.join(chosen.rivals) + ' would say' if chosen.rivals else ''})"


def calibrate(
    log: Log,
    *,
    outcomes: tuple[str, ...] = ("cost", "reward"),
    curve: str = "auto",
    noise: Noise = "proportional",
    caution: float = 1.2,
    resamples: int = 100,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Fit dose curves and propose constants.

    Args:
        outcomes: which of cost and reward the log holds; the reward's constants default to the cost's.
        curve: "auto", or a family's name.
        noise: "proportional" to the intensity, as the paper's model has it, or "constant", as of a sensor; then the
            deviation is proposed for both the noise and the sensor's noise.
        caution: what S, L and κ are multiplied by.
        resamples: of the bootstrap.
        progress: called with the number of fits just finished, of `fits(log, ...)`.

    >>> from safedial.core.dose import hill
    >>> from safedial.logs import simulated_log
    >>> from safedial.worlds.linear import LinearWorld
    >>> spec = SafetySpec(threshold=2, total_risk=0.05, reward_noise=0.2, cost_noise=0.2, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=2), spec, rounds=300, dose=hill(0.3))
    >>> found = calibrate(log, outcomes=("cost",), curve="emax", resamples=10)
    >>> bool(0.2 < found.dose.cost.parameters["ed50"] < 0.4), bool(0.2 <= found.proposals["cost_noise"].value < 0.3)
    (True, True)
    """
    _check(log, curve, noise, caution, resamples)
    used = log.action > 0.0
    context = log.context if log.dim else np.ones((len(log), 1))
    values = {"cost": log.cost - log.baseline_cost, "reward": log.reward}
    data = {name: Data(context[used], log.action[used], values[name][used]) for name in outcomes}
    curves = {
        name: choose_curve(each, noise=noise, name=curve, resamples=resamples, progress=progress)
        for name, each in data.items()
    }
    levels = log.action[used]
    return Calibration(
        curves=curves,
        data=data,
        proposals=_proposals(curves, data, context, noise, caution),
        noise=noise,
        dim=context.shape[1],
        seen=(float(levels.min()), float(levels.max())),
    )


def fits(log: Log, *, outcomes: int, curve: str = "auto", resamples: int = 100) -> int:
    """How many fits `calibrate` will make."""
    tried = len(families(log.action)) if curve == "auto" else 1
    return outcomes * (tried * FOLDS + resamples)


def _proposals(
    curves: dict[str, Chosen], data: dict[str, Data], context: Any, noise: Noise, caution: float
) -> dict[str, Proposal]:
    found = {
        f"{name}_noise": propose_noise(f"The {name}'s", chosen.fit, data[name], noise, caution)
        for name, chosen in curves.items()
    }
    if "reward" not in curves:
        found["reward_noise"] = Proposal(found["cost_noise"].value, "The log has no reward: taken from the cost.")
    if noise == "constant":
        words = "Of one size at every dose: stated as the sensor's noise as well."
        found |= {f"{name}_sensor_noise": Proposal(found[f"{name}_noise"].value, words) for name in ("reward", "cost")}
    fitted = {name: (chosen.fit, data[name]) for name, chosen in curves.items()}
    found["coefficient_bound"] = propose_coefficient_bound(fitted, noise, caution)
    found["context_bound"] = propose_context_bound(context, caution)
    return found


def _check(log: Log, curve: str, noise: str, caution: float, resamples: int) -> None:
    used = int((log.action > 0.0).sum())
    least = max(LEAST_ROWS, 3 * (log.dim + 3))
    rule = f"rows with a dose are too few: at least {least} are needed at dimension {max(log.dim, 1)}"
    require(used >= least, "log", used, rule)
    levels = np.unique(log.action[log.action > 0.0])
    rule = "is the only dose level: a curve cannot be fitted, since any g passes through one point"
    require(levels.size >= 2, "log", float(levels[0]), rule, "give rounds at two or more doses, or state the curve")
    known = families(log.action)
    rule = f"cannot be fitted to {levels.size} dose levels up to {levels[-1]:.3g}"
    require(curve == "auto" or curve in known, "curve", curve, rule, "choose from auto, " + ", ".join(known))
    require(noise in ("proportional", "constant"), "noise", noise, "must be proportional or constant")
    require(np.isfinite(caution) and caution >= 1.0, "caution", caution, "must be a number >= 1")
    require(type(resamples) is int and resamples >= 2, "resamples", resamples, "must be a whole number >= 2")


__all__ = ["Calibration", "calibrate", "fits"]
