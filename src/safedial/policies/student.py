"""HP-Student: the realized-cost guarantee for Gaussian noise of unknown size, with no κ, S or L.

With a probe in every round, C/g and R/g are one regression, whatever the doses were. If the cost's noise is Gaussian,
its size is learned exactly as a textbook learns it (`bounds.t_laws`):

1. least squares of C/g on x, without a ridge, gives ⟨x,μ̂⟩, s² = RSS/(n − d) and w² = xᵀ(XᵀX)⁻¹x
  (`bounds.least_squares`);
2. U(x) = ⟨x,μ̂⟩ + t_{n−d,1−δ}·s·√(1 + w²), and z_safe = 1 if U ≤ τ else τ/U;
3. z_safe is played if the estimated reward is ≥ 0, else a probe of it.

Given all contexts P(C/g > U) = δ exactly, so P(C > τ) ≤ δ for any dose in (0, z_safe]; and with immediate feedback the
number of excesses in T rounds is stochastically at most Binomial(T, δ). Until n ≥ d + 2 rounds of full rank are known,
and where contexts are too ill-conditioned, the dose is `start_dose`, which the user declares safe, or else the
first-round dose that the constants certify.

Needs: i.i.d. Gaussian cost noise; a mean cost linear in the context; contexts that carry neither past costs nor doses
nor outcomes with their noise ("anytime": any contexts); exact dose curves, no sensor noise, every dose above 0. Does
not give: validity given the history ("tolerance" and "anytime" do), or δ among full doses if the reward's noise is
related to the cost's. docs/student.md has the proofs and what breaks them.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.bounds import least_squares
from safedial.bounds.choice import Choice, choose
from safedial.bounds.confidence import Bounds
from safedial.bounds.least_squares import Fit, Fitted
from safedial.bounds.safe_set import SafeSet, largest_safe_intensity
from safedial.bounds.t_laws import Mixture, cost_upper
from safedial.errors import is_number, is_whole, require
from safedial.model.dose import Dose, identity
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import namespace
from safedial.model.spec import SafetySpec
from safedial.policies.baselines import fixed
from safedial.policies.conformal import OFF, hp_conformal
from safedial.policies.family import KNOWN, Asked, Task, Told
from safedial.policies.policy import Policy, check_probe, check_start_dose, probe_share

FORMS = ("per_round", "tolerance", "anytime")


class Learned(NamedTuple):
    """The fit of a batch, and for the anytime bound an upper bound on ln det(I + G/λ) and a lower one on g_min; with
    `either` also what `hp_conformal` has learned.
    """

    fit: Fit
    log_det: Any
    least: Any
    other: Any = None


def hp_student(
    *,
    guarantee: Literal["per_round", "tolerance", "anytime"] = "per_round",
    start_dose: float | None = None,
    probe: float | Literal["sqrt"] = 0.001,
    lag: int = 0,
    either: bool = False,
    mixture_ridge: float = 5.0,
    mixture_shape: float = 10.0,
) -> Policy:
    """Play z_safe from the Student bound if benefit is expected, else a probe of it; every round is informative.

    Args:
        guarantee: "per_round": P(C > τ) ≤ δ in every round, over the past too. "tolerance": in each round, with
            probability ≥ 1 − δ′ over the past, P(C > τ | past) ≤ δ. "anytime": with probability ≥ 1 − δ′, that in
            all rounds at once, whatever contexts do. All but the first need `estimation_risk` (δ′).
        start_dose: an intensity in (0, 1] that you declare safe for every context, used while there is no bound.
            None: the first-round dose certified by the spec's constants.
        probe: as for `hp_probe`, but above 0: a round without a dose would be left out because of its outcome.
        lag: for an Agent: how many of the latest rounds a decision leaves out, because their outcomes may still be
            open. While an older one is open the start dose is given. "anytime" needs none.
        either: give no more than `hp_conformal` would (without groups), and the start dose until both have a bound: the
            guarantee then holds if the noise is Gaussian, *or* if rounds are exchangeable. For "per_round".
        mixture_ridge, mixture_shape: λ and a of the anytime bound. λ is in units of a squared context: d times its mean
            squared coordinate is a good choice.

    Reference: this project, docs/student.md; Student's t prediction interval is a textbook's (Seber and Lee 2003, 5.3).
    """
    _check(guarantee, start_dose, probe, lag)
    require(either in (True, False), "either", either, "must be True or False")
    rule = "has no proof with either=True: the conformal guarantee is over the past rounds too"
    require(not either or guarantee == "per_round", "guarantee", guarantee, rule, "use guarantee='per_round'")
    other = conformal_part(start_dose, lag) if either else None
    for name, value in (("mixture_ridge", mixture_ridge), ("mixture_shape", mixture_shape)):
        require(is_number(value) and 0.0 < value < math.inf, name, value, "must be a number > 0")
    mixture = Mixture(float(mixture_ridge), float(mixture_shape))
    certified, anytime = fixed(), guarantee == "anytime"

    def volume(state: Learned, fit: Fit, seen: Fitted, weight: Any) -> tuple[Any, Any]:
        """Exact when a look is due. In between g_min, which never falls, stays, and a round adds
        ln(1 + xᵀ(λI + G)⁻¹x) to ln det. With G's eigenvalues g, xᵀ(λI + G)⁻¹x is w² times a mean of g/(g + λ), which is
        concave in g, and that mean of g is ‖x‖²/w², so it is at most ‖x‖²/(λ + ‖x‖²/w²) (Jensen); ‖x‖²/λ before G has
        full rank.
        """
        count = int(np.max(fit.rounds))
        if fit.outside is None and (seen.beyond is not None or least_squares.is_due(count, 6)):
            values = 1.0 / np.linalg.eigvalsh(fit.inverse)
            return np.sum(np.log1p(values / mixture.ridge), axis=-1), values[..., -1]
        square, leverage = seen.norm * seen.norm, seen.width * seen.width
        if seen.beyond is None:
            added = square * leverage / np.maximum(square + mixture.ridge * leverage, 1e-300)
        else:
            added = square / mixture.ridge
        more = np.log1p(added)
        return state.log_det + np.where(np.asarray(weight) > 0.0, more, 0.0), state.least

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = (), spec: Any = None) -> Learned:
        second = None
        if other is not None:
            bound = other.on(Task(dim=dim, spec=spec, dose=Dose(identity(), identity())))
            second = bound, bound.init(batch)
        return Learned(least_squares.init(dim, batch=batch), np.zeros(batch), np.zeros(batch), second)

    def predict(state: Learned, context: Any) -> Fitted:
        seen = least_squares.predict(state.fit, context)
        if other is not None:
            bound, rounds = state.other
            bound.begin(rounds)
            asked = Asked(context, seen.norm, 1.0)
            seen = seen._replace(other=(asked, bound.bound(rounds, asked)))
        return seen._replace(log_det=state.log_det, least=state.least) if anytime else seen

    def update(state: Learned, prediction: Fitted, reward: Any, cost: Any, weight: Any) -> Learned:
        fit = least_squares.update(state.fit, prediction, reward, cost, weight)
        if other is not None:
            bound, rounds = state.other
            asked, found = prediction.other
            bound.open(rounds, asked, found, 0.0)
            told = Told(KNOWN, reward, cost, np.asarray(weight), cost, 0.0, 0.0, 0.0, asked.context)
            bound.tell(rounds, rounds.count - 1, told)
        kept = volume(state, fit, prediction, weight) if anytime else (state.log_det, state.least)
        return Learned(fit, *kept, state.other)

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bound = cost_upper(prediction, guarantee, spec.violation_risk, spec.estimation_risk, mixture=mixture)
        if other is not None:
            second = conformal_bound(prediction.other, spec)
            bound = namespace(bound, second).maximum(bound, second)
        xp = namespace(bound)
        ready = bound < math.inf
        safe = largest_safe_intensity(xp.where(ready, bound, 0.0), 0.0, threshold=spec.threshold - baseline_cost)
        if not (ready if isinstance(ready, bool) else np.all(ready)):
            first = SafeSet(xp.where(safe.certified, start_dose, 0.0), safe.certified)
            if start_dose is None:
                first = certified.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost).safe
            safe = SafeSet(*(xp.where(ready, *parts) for parts in zip(safe, first, strict=True)))
        index = xp.where(prediction.ready, prediction.reward, 0.0)
        return choose(index, safe, Bounds(prediction.reward, bound, 0.0, 0.0, False), probe=probe_share(probe, round))

    options = {"guarantee": guarantee, "start_dose": start_dose, "probe": probe, "lag": lag, "either": either}
    options |= {"mixture_ridge": mixture_ridge, "mixture_shape": mixture_shape}
    own: Any = {"init": init, "predict": predict, "update": update}
    return Policy("hp_student", "HP-Student", "student", decide, options, check=_check_spec(guarantee), **own)


def conformal_part(start_dose: float | None, lag: int) -> Any:
    """The policy whose dose is not exceeded with either=True: its guarantee is over all rounds, as that of
    HP-Student.
    """
    return hp_conformal(groups="none", start_dose=start_dose, lag=lag, **OFF)


def conformal_bound(prediction: Any, spec: SafetySpec) -> Any:
    """U(x) of `hp_conformal`; ∞ where there is none."""
    return prediction[1].numbers["cost_upper"]


def _check_spec(guarantee: str) -> Any:
    def check(spec: SafetySpec) -> None:
        """Refuse what the proofs do not cover."""
        sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
        rule = "must be 0 for hp_student: C/g would be noisier at lower doses"
        require(sensor == (0.0, 0.0), "sensor noise", sensor, rule, "use hp_probe")
        rule = "has no proof with hp_student, whose noise must scale with the intensity"
        require(spec.noise_scale is None, "noise_scale", spec.noise_scale, rule, "use hp_probe")
        stated = GUARANTEES[spec.guarantee]
        each = stated.each_round and not stated.exchangeable
        require(each, "guarantee", spec.guarantee, "is not what hp_student gives", "use guarantee='student'")
        half = np.all(np.asarray(spec.violation_risk) < 0.5)
        require(half, "violation_risk", spec.violation_risk, "must be below 0.5 for hp_student")
        known = guarantee == "per_round" or spec.estimation_risk is not None
        rule = f"is missing: guarantee={guarantee!r} needs it beside violation_risk"
        require(known, "estimation_risk", None, rule, "0.01 is usual")

    return check


def _check(guarantee: Any, start_dose: Any, probe: Any, lag: Any) -> None:
    require(guarantee in FORMS, "guarantee", guarantee, "must be one of " + ", ".join(map(repr, FORMS)))
    check_start_dose(start_dose)
    check_probe(probe, always=True)
    require(is_whole(lag, 0), "lag", lag, "must be a whole number >= 0", "how many rounds an outcome may take")
