"""The constants that a promise needs, from pilot or published dose–response data.

    log ─► confounded? ─► families ─► fit, cross-validation, bootstrap ─► g with its uncertainty
               └─► powers, adjusted for the context ───────────────────────┘
                              └─► residuals, coefficients, contexts ─► κ_r, κ_c, S, L, each with its reason ─► spec file

The result is a proposal for a person to judge. It is in-sample: use it for future rounds, never to certify the log it
was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.calibration.adjusted import Allowed, choose_adjusted, widened
from safedial.calibration.choose import FOLDS, Chosen, choose_curve
from safedial.calibration.constants import (
    Proposal,
    propose_coefficient_bound,
    propose_context_bound,
    propose_noise,
)
from safedial.calibration.curve_families import families
from safedial.calibration.fit import Data, Noise
from safedial.calibration.result import Calibration, rows_left_out
from safedial.decision.units import Dial
from safedial.diagnostics.confounding import BROKEN, assignment, words
from safedial.diagnostics.evidence import average
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.errors import is_whole, require
from safedial.rounds_io import Log

LEAST_ROWS = 20

LEVEL = 0.05
"""The chance of a false flag for confounded doses."""

UNUSED = "with a dose of 0 or an outcome that is not learned from"
LATER = "after the first outcome that is still open or missing for an unknown reason"
"""Why rows are left out."""

ORDERS = 20
"""The number of random orders of the rows over which that evidence is averaged."""


def calibrate(
    log: Log,
    *,
    outcomes: tuple[str, ...] = ("cost", "reward"),
    curve: str = "auto",
    noise: Noise = "proportional",
    caution: float = 1.2,
    resamples: int = 100,
    dial: Dial | None = None,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Fit dose curves and propose constants.

    Args:
        outcomes: which of cost and reward the log holds; the reward's constants default to the cost's.
        curve: "auto", or a family's name.
        noise: "proportional" to the intensity, as in the paper's model, or "constant", like a sensor's; then the
            deviation is proposed for both the noise and the sensor's noise.
        caution: the factor applied to S, L and κ.
        resamples: the number of bootstrap samples.
        dial: the log's units, for text and pictures.
        progress: called with the number of fits just finished, out of `fits(log, ...)`.

    >>> from safedial.core.dose import hill
    >>> from safedial.core.spec import SafetySpec
    >>> from safedial.simulation.logged import simulated_log
    >>> from safedial.worlds.linear import LinearWorld
    >>> spec = SafetySpec(threshold=2, total_risk=0.05, reward_noise=0.2, cost_noise=0.2, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=2), spec, rounds=300, dose=hill(0.3))
    >>> found = calibrate(log, outcomes=("cost",), curve="emax", resamples=10)
    >>> bool(0.2 < found.dose.cost.parameters["ed50"] < 0.4), bool(0.2 <= found.proposals["cost_noise"].value < 0.3)
    (True, True)
    """
    whole, log = log, log.prefix
    _check(log, curve, noise, caution, resamples)
    used = log.action > 0.0
    context = log.context if log.dim else np.ones((len(log), 1))
    values = {"cost": log.cost - log.baseline_cost, "reward": log.reward}
    data = {name: Data(context[used], log.action[used], values[name][used]) for name in outcomes}
    confounding = confounded_doses(log.rows(used))
    curves: dict[str, Chosen] = {}
    allowed: dict[str, Allowed] = {}
    for name, each in data.items():
        if confounding.flagged and curve == "auto":
            curves[name], allowed[name] = choose_adjusted(each, noise=noise)
        else:
            curves[name] = choose_curve(each, noise=noise, name=curve, resamples=resamples, progress=progress)
            if confounding.flagged:
                curves[name], allowed[name] = widened(curves[name], each)
    levels = log.action[used]
    return Calibration(
        curves=curves,
        data=data,
        proposals=_proposals(curves, data, context, noise, caution),
        noise=noise,
        dim=context.shape[1],
        seen=(float(levels.min()), float(levels.max())),
        confounding=confounding,
        allowed=allowed,
        stated=curve != "auto",
        dial=Dial() if dial is None else dial,
        left_out=rows_left_out(len(whole), {UNUSED: int((~used).sum()), LATER: len(whole) - len(log)}),
    )


def confounded_doses(log: Log, progress: Callable[[int], None] | None = None) -> Finding:
    """Whether the context guided the doses without recorded advice, averaged over random orders of the rows;
    `progress` is called with 1 after each of `ORDERS`.
    """
    pilot = log.rows(np.isnan(log.advised))
    rng, count = np.random.default_rng(0), len(pilot)
    found = []
    for order in [rng.permutation(count) for _ in range(ORDERS)]:
        found.append(assignment(pilot.context[order], pilot.action[order]))
        if progress:
            progress(1)
    evidence = average([each.log_evidence[-1] if count else 0.0 for each in found])
    return finding(
        "confounding",
        "Confounded doses",
        Process(np.array([float(count)]), np.array([evidence]), 1.0 / LEVEL),
        tested="Were doses chosen without the context, or does it predict them?",
        found=words(found[0], pilot.names, count) if count else "Advice is on record for every round.",
        fine="There is no evidence that doses followed the context. No check can see reasons outside the log.",
        broken=f"{BROKEN} The curves here are adjusted for the context, and therefore less certain.",
        explained=found[0].explained,
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
        words = "The same size at every dose: also stated as the sensor's noise."
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
    rule = "is the only dose level: a curve cannot be fitted, because any g passes through one point"
    require(levels.size >= 2, "log", float(levels[0]), rule, "give rounds at two or more doses, or state the curve")
    known = families(log.action)
    rule = f"cannot be fitted to {levels.size} dose levels up to {levels[-1]:.3g}"
    require(curve == "auto" or curve in known, "curve", curve, rule, "choose from auto, " + ", ".join(known))
    require(noise in ("proportional", "constant"), "noise", noise, "must be proportional or constant")
    require(np.isfinite(caution) and caution >= 1.0, "caution", caution, "must be a number >= 1")
    require(is_whole(resamples, 2), "resamples", resamples, "must be a whole number >= 2")


__all__ = ["Calibration", "calibrate", "confounded_doses", "fits"]
