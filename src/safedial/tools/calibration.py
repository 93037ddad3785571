"""The constants that a guarantee needs, from pilot or published dose–response data.

    log ─► confounded? ─► families ─► fit, cross-validation, bootstrap ─► g with its uncertainty
               └─► powers, adjusted for the context ───────────────────────┘
                              └─► residuals, coefficients, contexts ─► κ_r, κ_c, S, L, each with its reason ─► spec file

The result is a proposal for a person to judge. It is in-sample: use it for future rounds, never to certify the log it
was made from.

**The uncertainty of a dose curve in the bound** (`fold_curve_error`). Let the true curve be h with |h/g − 1| ≤ ρ at
every dose that is used. A normalised cost is then y = r(c + ξ), r = h/g:

* its noise rξ is (1 + ρ)κ-sub-Gaussian, and its mean is off by at most ρSL, so by XΣ⁻¹Xᵀ ⪯ I the estimate is off by at
  most ρSL√N in the norm of the radius: ‖μ̂ − μ*‖_Σ ≤ β + ρSL√N after N rounds, with β for the constant (1 + ρ)κ;
* the realized cost is at most z(1 + ρ)(c + ξ)⁺, and (1 + ρ)(U + qκ) ≤ U + q((1 + ρ)κ + ρSL/q) for U ≤ SL.

Both are covered by the same rule with larger constants:

    κ' = (1 + ρ)κ + ρSL/q,  q = √(2 ln 1/δ)         λS'² = λS² + 2b√(κ'²V + λS²) + b²,  b = ρSL√N

for the cost, the `mixture` radius and N up to a planned number of rounds, V the largest ln det(Σ/λ) + 2 ln(1/δ′) by
then: √(κ'²v + λS'²) ≥ √(κ'²v + λS²) + b for every v ≤ V. The guarantee then holds for every h within ρ of g, for that
many rounds. That ρ holds is the calibration's estimate, not a proof.

`paper` (d ≥ 2) is at least as wide as `mixture` with the same constants, so it is covered too.
`self-normalised` uses S' only for what the estimate does not reach, and `noise-adaptive` rests on another event:
neither is covered. The spec states its ridge, so an agent or a study that names no radius keeps `mixture`. It holds
neither the radius nor the number of rounds, and nothing checks them later: keep the policy that the spec was made for,
and calibrate again for more rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from safedial.bounds.confidence import check_dim
from safedial.errors import InvalidInput, is_whole, require
from safedial.io import card
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve, as_dose, curve_from_dict
from safedial.model.spec import VIOLATION_SHARE, SafetySpec
from safedial.policies.policy import Task
from safedial.policies.supports import facts
from safedial.rounds.log_file import Log
from safedial.rounds.specfile import SpecFile
from safedial.tools.dose_fit import (
    FOLDS,
    Allowed,
    Array,
    Chosen,
    Data,
    Noise,
    Proposal,
    choose_adjusted,
    choose_curve,
    families,
    propose_coefficient_bound,
    propose_context_bound,
    propose_noise,
    round_up,
    widened,
)
from safedial.tools.evidence import average
from safedial.tools.findings import Finding, Process, finding
from safedial.tools.linear_checks import BROKEN, assignment, words

LARGEST_ERROR = 1.0
"""A fitted curve whose error may equal its own height says nothing about the dose's effect."""

LARGEST_TIE = 1 / 3
"""If a larger share of costs is equal, at several doses, costs say nothing about the dose."""

UNSEEN = (
    "Assumed: no reason outside the log both guided the doses and changed the outcomes (confounding). No data can "
    "show this."
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Curves by outcome, and the proposals by name of the spec's field.

    Attributes:
        confounding: whether the context guided the doses without recorded advice; evidence of 20 raises the flag,
            which is false with probability at most 5 %.
        allowed: by outcome, if that flag is raised: the powers of the curve that the data allow, adjusted for the
            context.
        stated: whether the family was stated rather than chosen by the data.
        seen: the smallest and the largest positive dose of the log, as shares of the dial.
        dial: the log's units, for text and pictures.
        left_out: how many rows of the log were not used, and why; empty if all were.
    """

    curves: dict[str, Chosen]
    data: dict[str, Data] = field(repr=False)
    proposals: dict[str, Proposal]
    noise: Noise
    dim: int
    seen: tuple[float, float]
    confounding: Finding
    allowed: dict[str, Allowed]
    stated: bool
    dial: Dial
    left_out: str = ""

    @property
    def dose(self) -> Dose:
        cost = _rounded(self.curves["cost"].fit.curve)
        return Dose(_rounded(self.curves["reward"].fit.curve) if "reward" in self.curves else cost, cost)

    @property
    def problem(self) -> str:
        """Why this calibration cannot support a guarantee, in words; empty if it can."""
        if tied := tied_costs(self.data["cost"].outcome, self.data["cost"].action):
            return tied
        error = self.curves["cost"].error
        if error >= LARGEST_ERROR and not self.stated:
            state = "or state a known curve with --curve (in Python, curve=)"
            cause = (
                f"give some doses at random, {state}"
                if self.confounding.flagged
                else f"give more rows at different doses, {state}"
            )
            return f"At the doses used, the cost's curve may be off by {error:.0%}: its shape was not learned; {cause}."
        return ""

    def spec_file(self, *, threshold: float, total_risk: float, features: Features | None = None) -> SpecFile:
        """The proposals as a spec file, with the threshold and the risk that you state."""
        if self.problem:
            raise InvalidInput(f"calibration: learned too little for a spec file. {self.problem}")
        require(0.0 < total_risk < 1.0, "total_risk", total_risk, "must lie strictly between 0 and 1", "0.05 is 5 %")
        constants: dict[str, Any] = {name: proposal.value for name, proposal in self.proposals.items()}
        violation = round(VIOLATION_SHARE * total_risk, 12)
        risks = {"violation_risk": violation, "estimation_risk": round(total_risk - violation, 12)}
        spec = SafetySpec(threshold=threshold, **risks, **constants)
        policy = {"name": "hp_probe"}
        return SpecFile(spec=spec, dose=self.dose, dim=self.dim, dial=self.dial, features=features, policy=policy)

    def notes(self) -> dict[str, str]:
        """The reasons, as comments for the spec file."""
        top = ["Proposed by safedial calibrate, for a person to judge: an estimate from data, not a proof."]
        top += [f"{name}: {self.words(name)}" for name in self.curves]
        top += [self.left_out] if self.left_out else []
        top += [f"FLAG: {self.confounding.found} {self.confounding.means}"] if self.confounding.flagged else [UNSEEN]
        return {"": "\n".join(top)} | {name: each.reason for name, each in self.proposals.items()}

    def _repr_html_(self) -> str:
        rows = ({"constant": name, **each._asdict()} for name, each in self.proposals.items())
        return card("Proposed constants, for you to judge", rows, self.notes()[""].splitlines())

    def words(self, name: str) -> str:
        """The fitted curve, in a sentence."""
        chosen, (low, high) = self.curves[name], (self.dial.amount(end) for end in self.seen)
        edge = (
            f" Doses outside {low} to {high} were never given: there the curve is a guess." if self.seen[1] < 1 else ""
        )
        how = f"the simplest within one standard error of the best in {FOLDS}-fold cross-validation; "
        how = "as stated; " if self.stated else how
        how = f"{self._adjusted(name)}; " if name in self.allowed else how
        shape = chosen.fit.family + _rounded(chosen.fit.curve).words.removeprefix(chosen.fit.curve.name)
        return f"curve {shape}, {how}{_uncertainty(chosen)}.{edge}"

    def _adjusted(self, name: str) -> str:
        low, high = self.allowed[name].range
        base = "the dose" if not self.stated else "this curve"
        words = (
            f"adjusted for the context, which guided the doses: powers of {base} from {low:.2g} to {high:.2g} agree "
            "with the data (95 %)"
        )
        return words if not self.stated or low <= 1.0 <= high else f"{words}, and this curve itself does not"


def rows_left_out(rows: int, reasons: dict[str, int]) -> str:
    """How many of the log's rows a calibration does not use, by reason; empty if it uses all.

    >>> rows_left_out(176, {"without a cost": 8, "with a dose of 0": 1})
    'Left out: 9 of 176 rows (8 without a cost, 1 with a dose of 0).'
    """
    told = [f"{count} {why}" for why, count in reasons.items() if count]
    return f"Left out: {sum(reasons.values())} of {rows} rows ({', '.join(told)})." if told else ""


def tied_costs(outcome: Array, action: Array) -> str:
    """Why costs hardly say how they change with the dose: too many have one value; empty if they do say it."""
    values, counts = np.unique(outcome, return_counts=True)
    common = int(np.argmax(counts))
    several = np.unique(action[outcome == values[common]]).size > 1
    if not several or counts[common] <= LARGEST_TIE * len(outcome):
        return ""
    return (
        f"{counts[common]} of {len(outcome)} costs are {values[common]:.4g}, at several doses: they hardly say how the "
        "cost changes with the dose. Report the measured quantity, not its excess over a limit and not whether it "
        "exceeded one."
    )


def _uncertainty(chosen: Chosen) -> str:
    if not chosen.error:
        return "it was not compared with any other, so its error is unknown"
    words = f"at the doses used it is uncertain by {chosen.error:.1%}"
    return f"{words} (95 %{', and what ' + ', '.join(chosen.rivals) + ' would say' if chosen.rivals else ''})"


def _rounded(curve: DoseCurve) -> DoseCurve:
    """The curve with four-digit numbers, more than a fit can determine; unchanged if rounding would break it."""
    plain = {name: np.vectorize(lambda part: float(f"{part:.4g}"))(value) for name, value in curve.parameters.items()}
    try:
        return curve_from_dict({"curve": curve.name, **{name: value.tolist() for name, value in plain.items()}})
    except InvalidInput:
        return curve


# --- The constants that a guarantee needs, from pilot or published dose–response data

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

    >>> from safedial.model.dose import hill
    >>> from safedial.model.spec import SafetySpec
    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
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
        Process(np.array([float(count)]), np.array([evidence]), 1.0 / LEVEL),
        title="Confounded doses",
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


# --- The uncertainty of a dose curve in the bound

RADII = ("mixture", "paper")
"""The radii that the proof covers."""

COVERED = frozenset({"guarantee certified", "threshold from 1"})
"""The facts about a spec that the proof covers (`policies.supports`)."""


def fold_curve_error(spec: SafetySpec, *, error: float, dim: int, rounds: int, radius: str = "mixture") -> SafetySpec:
    """The spec whose bound covers every curve within `error` of the stated one, for `rounds` rounds.

    Args:
        error: ρ.
        dim: d.
        rounds: N, the planned number of rounds. After them the guarantee holds only for the stated curve.
        radius: the policy's radius. It must be one of `RADII`, and the policy must keep it.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> wider = fold_curve_error(spec, error=0.05, dim=3, rounds=500)
    >>> wider.cost_noise, wider.coefficient_bound
    (0.34, 2.6)
    """
    sound = isinstance(error, (int, float)) and 0.0 <= error < 1.0
    require(sound, "error", error, "must be a number in [0, 1)", "a curve this uncertain needs more data")
    require(is_whole(rounds), "rounds", rounds, "must be the planned number of rounds, >= 1")
    plain = facts(Task(dim=dim, spec=spec, dose=as_dose(None))) <= COVERED
    rule = "works only with guarantee='certified', the sub-Gaussian margin, no sensor noise and no noise_scale"
    require(plain, "spec", spec.guarantee, rule)
    words = "has no proof for an uncertain curve"
    require(radius in RADII, "radius", radius, words, "use " + " or ".join(map(repr, RADII)))
    check_dim(radius, dim)
    reach = error * spec.coefficient_bound * spec.context_bound
    noise = round_up((1.0 + error) * spec.cost_noise + reach / spec.tail)
    shift = reach * math.sqrt(rounds)
    largest = dim * math.log1p(rounds * spec.context_bound**2 / (dim * spec.ridge)) + 2.0 * spec.log_inverse_risk
    base = spec.ridge * spec.coefficient_bound**2
    top = noise**2 * largest + base
    bound = round_up(math.sqrt((base + 2.0 * shift * math.sqrt(top) + shift**2) / spec.ridge))
    return replace(spec, cost_noise=noise, coefficient_bound=bound)
