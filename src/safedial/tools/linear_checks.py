"""Checks of what a certified guarantee rests on: norms, tails, linearity, drift, dose curve, noise, influence, doses.

They use normalised outcomes, and residuals taken before each round's update:

    y_t = (C_t − b₀)/g_c(α_t)   or   R_t/g_r(α_t)        e_t = y_t − ⟨x_t, μ̂_{t−1}⟩

μ̂_{t−1} is the policy's estimate from the rounds before t, so e_t = ξ_t + ⟨x_t, μ* − μ̂_{t−1}⟩: noise, and an error
that was fixed before the noise was drawn. Residuals of a fit that includes the round are smaller than the noise and
would hide what the checks look for. Rounds at intensity 0 carry no information and are left out. With sensor noise
every row is multiplied by √ω (bounds/estimate.py), which makes its noise κ-sub-Gaussian again.

**Confounded doses.** If a doctor chooses doses by what they see, only the model separates the effect of the dose from
that of the context: if the mean bends with a feature that guides the doses, a fitted dose curve bends instead.

**Evidence.** Take two successive rounds, with doses a, a′ and contexts x, x′. If doses are chosen without the context,
the two doses could just as well have been swapped. With predictions f of the dose, and s² of its variance, both from
earlier rounds,

    2/(1 + exp(−k(a − a′)(f(x) − f(x′))/s²))

then has mean exactly 1, whatever k and f: swapping the doses flips the exponent's sign, and 2/(1 + e^−u) + 2/(1 + e^u)
is 2. Its product over pairs is a martingale that starts at 1: it ever reaches 1/a with probability at most a, however
often you look. (For Gaussian doses and k = 1 it is the likelihood ratio.) Every k of `BOLDNESS` gets an equal bet.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.margin import margin_assumptions
from safedial.errors import require
from safedial.model.costs import require_one_cost
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies.supports import facts
from safedial.rounds.log_file import Log
from safedial.tools.evidence import (
    Moments,
    average,
    bounded_least_squares,
    least_squares,
    marks,
    mixture,
    running,
    spread,
)
from safedial.tools.findings import Finding, Process, draw_evidence, finding
from safedial.tools.log_watch import watch_counts
from safedial.tools.pages import BLUE, FILL, ORANGE, legend_below, new_figure, title
from safedial.tools.walk import LogCase, LogTest, Walk, require_rounds

Target = Literal["cost", "reward"]

ESTIMATION_SHARE = 0.1
"""The share of a check's level that its confidence set uses."""


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """The informative rounds of a walk, in order; n rows.

    Attributes:
        number: the rounds' numbers in the log.
        context: (n, d), as the policy saw them; all_norms: of every row, informative or not.
        rows, outcome: √ω·context and √ω·y.
        fitted: ⟨x_t, μ̂_{t−1}⟩, known before the outcome.
        residual: √ω·e_t. slack: what its error part is at most, β_t·width_t·√ω, with probability ≥ 1 − `slack_risk`.
        free: which rounds have no recorded advice.
        noise: κ of the target. horizon: the planned number of rounds, fixed in advance.
    """

    target: str
    spec: SafetySpec
    walk: Walk
    noise: float
    horizon: int
    number: Array
    all_norms: Array
    names: tuple[str, ...]
    context: Array
    action: Array
    free: NDArray[np.bool_]
    intensity: Array
    weight: Array
    rows: Array
    outcome: Array
    fitted: Array
    residual: Array
    slack: Array
    gram: Array
    coef: Array

    def __len__(self) -> int:
        return len(self.number)

    @property
    def at(self) -> NDArray[np.int64]:
        """The rounds at which evidence is taken."""
        return marks(len(self))


def read_residuals(
    log: Log,
    spec: SafetySpec,
    dose: Dose | None = None,
    *,
    target: str = "cost",
    horizon: int | None = None,
    slack_risk: float = 0.005,
) -> Residuals:
    """The residuals of a log, walked through the certified policy with the `mixture` radius.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> rounds = read_residuals(simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=200), spec)
    >>> len(rounds), bool(abs(rounds.residual[100:].std() - 0.3) < 0.05)
    (200, True)
    """  # fmt: skip
    require(target in ("cost", "reward"), "target", target, "must be cost or reward")
    lacking = [name for name in CONSTANTS if getattr(spec, name) is None]
    rule = "are not in the spec, and the checks test constants"
    require(not lacking, "spec", lacking, rule, "a conformal guarantee assumes exchangeability: an Agent watches it")
    planned = len(log) if horizon is None else horizon
    rule = f"must be a whole number of rounds, at least the log's {len(log)}"
    fits = type(planned) is int and planned >= len(log)
    require(fits, "horizon", planned, rule, "it is fixed before the first round")
    case = LogCase(log=log, spec=replace(spec, estimation_risk=slack_risk), dose=dose, level=slack_risk)
    walk = case.walked(("reward", "cost", "cost_slack", f"{target}_far"), {"radius": "mixture"})
    told, rounds, numbers = walk.told, walk.rounds, walk.numbers
    require_rounds(told, 2 * log.dim + 8, f" at dimension {log.dim}")
    used = np.flatnonzero(told.weight > 0.0)
    weight, root = told.weight[used], np.sqrt(told.weight[used])
    # The mean cost lies within its slack below the number, which is raised for rounding: so the estimate is between.
    fitted = {"cost": numbers["cost"] - 0.5 * numbers["cost_slack"], "reward": numbers["reward"]}
    outcomes = {"cost": (told.cost, told.intensity), "reward": (told.reward, told.reward_intensity)}
    outcome, intensity, fitted = (each[used] for each in (*outcomes[target], fitted[target]))
    rows = root[:, None] * rounds.context[used]
    gram = rows.T @ rows + spec.ridge * np.eye(log.dim)
    return Residuals(
        target=target,
        spec=spec,
        walk=walk,
        noise=float(spec.cost_noise if target == "cost" else spec.reward_noise),
        horizon=planned,
        number=rounds.number[used],
        all_norms=np.linalg.norm(rounds.context, axis=1),
        names=rounds.names,
        context=rounds.context[used],
        action=rounds.setting[used],
        free=np.isnan(rounds.advised[used]),
        intensity=intensity,
        weight=weight,
        rows=rows,
        outcome=root * outcome,
        fitted=fitted,
        residual=root * (outcome - fitted),
        slack=root * numbers[f"{target}_far"][used],
        gram=gram,
        coef=np.linalg.solve(gram, rows.T @ (root * outcome)),
    )


# --- Norm bounds

NORM_SIZES = (1.0, 3.0, 10.0)
"""Prior deviations of the coefficients, as multiples of S; each gets an equal bet."""

ROUNDING = 1e-9


def check_norms(rounds: Residuals, *, needed: float) -> Finding:
    """Bets on any μ against the best fit with ‖μ‖ ≤ S (`mixture` in evidence.py); a context longer than L is a flag.

    Contexts are checked in every row, with or without a dose. The radius and the cut at S‖x‖ both depend on S; L is
    only checked.
    """
    spec = rounds.spec
    moments = running(rounds.rows, rounds.outcome, rounds.at)
    null = bounded_least_squares(moments, spec.coefficient_bound)
    dim = rounds.context.shape[1]
    priors = [np.full(dim, size * spec.coefficient_bound) for size in NORM_SIZES]
    logs = average([mixture(moments, prior, rounds.noise, null) for prior in priors], axis=0)
    longest = float(rounds.all_norms.max())
    beyond = int((rounds.all_norms > spec.context_bound * (1.0 + ROUNDING)).sum())
    size = float(np.linalg.norm(rounds.coef))
    where = f"{beyond} contexts are longer than L" if beyond else "no context is longer than L"
    return finding(
        "norms",
        Process(rounds.number[rounds.at - 1], np.full(len(logs), np.inf) if beyond else logs, needed),
        title="Norm bounds",
        tested=f"Is every context at most L = {spec.context_bound:g} long, and can the {rounds.target}'s coefficients "
        f"have norm at most S = {spec.coefficient_bound:g}?",
        found=f"The longest context has norm {longest:.3g}: {where}. The estimated coefficients have norm {size:.3g}.",
        fine="There is no evidence against S and L.",
        broken="The radius and the cut at S times the context's norm are too small where S is: doses may be too high. "
        "Restart with bounds that hold (safedial calibrate proposes some), or use guarantee = 'conformal'.",
        longest_context=longest,
        contexts_beyond=beyond,
        coefficient_norm=size,
    )


# --- Sub-Gaussian tails: is the noise as light as κ says?

HEIGHTS = np.array([2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0])
"""q: residuals beyond qκ and their slack are counted."""

GAINS = np.array([1.5, 4.0, 20.0])
"""Odds multiples that get a bet at each height, and one more for which a single such residual is strong evidence."""

TELLING = 3e-3
"""That last bet's largest product of a height's chance and its odds multiple."""


def check_tails(rounds: Residuals, *, needed: float) -> Finding:
    """Two kinds of bets, in equal shares.

    * On width: `spread` over all rounds (evidence.py).
    * On rare large residuals: |ξ| > qκ has probability ≤ p = 2e^{−q²/2}, or 2Φ(−q) if the spec's margin assumes
      Gaussian noise. On the event of the confidence set |e_t| > qκ + slack_t implies it, so Π m^v/(1 + p(m − 1)) is a
      supermartingale there, as in bounds/monitor.py.

    If the margin assumes bounded noise in the cost, one residual beyond the range and its slack is a flag.
    """
    at, spec = rounds.at, rounds.spec
    wide = spread(running(rounds.rows, rounds.outcome, at), rounds.noise)
    scaled = (np.abs(rounds.residual) - rounds.slack) / rounds.noise
    chance = _chances(rounds)
    odds = np.concatenate([np.tile(GAINS[:, None], len(HEIGHTS)), np.maximum(TELLING / chance, GAINS[-1])[None]])
    over = scaled[:, None] > HEIGHTS
    gains = over[:, None] * np.log(odds) - np.log1p(chance * (odds - 1.0))
    rare = average(np.cumsum(gains, axis=0)[at - 1].reshape(len(at), -1))
    low, high, bounded = spec.noise_low, spec.noise_high, rounds.target == "cost" and spec.margin == "bounded"
    outside = np.zeros(len(rounds), dtype=bool)
    if bounded:  # where the noise must lie beyond its stated range, on the event of the confidence set
        outside = (rounds.residual - rounds.slack > high) | (rounds.residual + rounds.slack < low)
    logs = np.where(np.cumsum(outside)[at - 1] > 0, np.inf, average([wide, rare], axis=0))
    deviation = float(np.sqrt(np.mean(rounds.residual**2)))
    height = math.sqrt(2.0 * math.log(2.0 * len(rounds)))
    largest = float(scaled.max())
    return finding(
        "tails",
        Process(rounds.number[at - 1], logs, needed),
        title="Sub-Gaussian tails",
        tested=f"Are one-step-ahead residuals of the {rounds.target} as small, and large ones as rare, as noise with "
        f"constant κ = {rounds.noise:g} allows?",
        found=f"Their root mean square is {deviation:.3g} (κ = {rounds.noise:g}); the largest exceeds its slack by "
        f"{max(largest, 0.0):.2g} κ, where {height:.2g} κ is usual in {len(rounds)} rounds; {int(over[:, 2].sum())} "
        f"exceed it by 3 κ, at most {len(rounds) * chance[2]:.2g} are expected."
        + (f" {int(outside.sum())} lie beyond the stated range from {low:g} to {high:g}." if bounded else ""),
        fine="There is no evidence against κ. Residuals cannot prove that it is large enough.",
        broken=_broken(rounds),
        deviation=deviation,
        largest=largest,
        beyond_three=int(over[:, 2].sum()),
    )


def _chances(rounds: Residuals) -> Array:
    """p at each height: what the stated noise allows."""
    from scipy.special import ndtr

    if rounds.target == "cost" and rounds.spec.margin == "gaussian":
        return 2.0 * np.asarray(ndtr(-HEIGHTS))
    return 2.0 * np.exp(-0.5 * HEIGHTS**2)


def _broken(rounds: Residuals) -> str:
    if rounds.target == "reward":
        return "This costs reward, not safety: the reward's constant plays no part in safety. State a larger κ."
    return (
        "The noise margin κ√(2 ln 1/δ) and the radius may be too small: costs can exceed the threshold more often than "
        "guaranteed. If linearity, drift or the dose curve raise a flag too, begin there: a wrong mean looks like wide "
        "noise. Otherwise restart with a larger κ; if tails are heavy no κ is enough, and guarantee = 'conformal' "
        "needs none."
    )


# --- Linearity: does the mean outcome per unit of intensity bend in the context?

BEND_SIZES = (0.1, 0.4, 1.5)
"""Prior deviations of the bent terms, in units of S·L at contexts of norm L; each gets an equal bet."""

BANDS = 5
LARGEST_QUADRATIC = 12
"""Up to this dimension all squares and products are tried as well."""


def bends(rounds: Residuals) -> list[Array]:
    """Sets of further features, each known before the outcome: powers of the prediction (1, ĉ², ĉ³), all quadratics."""
    reach = rounds.spec.coefficient_bound * rounds.spec.context_bound
    share = np.clip(rounds.fitted / reach, -2.0, 2.0)
    sets = [np.column_stack([np.ones(len(rounds)), share**2, share**3])]
    dim = rounds.context.shape[1]
    if dim <= LARGEST_QUADRATIC:
        scaled = rounds.context / rounds.spec.context_bound
        first, second = np.triu_indices(dim)
        sets.append(scaled[:, first] * scaled[:, second])
    return sets


def against_features(rounds: Residuals, extra: Array, sizes: Array) -> Array:
    """ln E over time of a mean ⟨x,μ⟩ + ⟨extra,ν⟩ against ⟨x,μ⟩ with any μ; `sizes` (k, 1): deviations of ν tried."""
    root = np.sqrt(rounds.weight)[:, None]
    dim = rounds.rows.shape[1]
    moments = running(np.hstack([rounds.rows, root * extra]), rounds.outcome, rounds.at)
    null = moments._replace(gram=moments.gram[:, :dim, :dim], rhs=moments.rhs[:, :dim])
    least = least_squares(null)
    base = np.full(dim, rounds.spec.coefficient_bound)
    priors = [np.concatenate([base, np.broadcast_to(size, extra.shape[1])]) for size in sizes]
    return average([mixture(moments, prior, rounds.noise, least) for prior in priors], axis=0)


def check_linearity(rounds: Residuals, *, needed: float) -> Finding:
    """Bets on bent means against every linear one (`mixture` in evidence.py)."""
    reach = rounds.spec.coefficient_bound * rounds.spec.context_bound
    sizes = reach * np.array(BEND_SIZES)[:, None]
    logs = average([against_features(rounds, extra, sizes) for extra in bends(rounds)], axis=0)
    late = slice(len(rounds) // 2, None)
    share, rise = _in_bands(rounds.fitted[late], rounds.residual[late])
    return finding(
        "linearity",
        Process(rounds.number[rounds.at - 1], logs, needed),
        tested=f"Is the mean {rounds.target} per unit of intensity linear in the context, or does a constant, a "
        "square, a cube of the prediction or a product of features help?",
        found=f"Mean residuals in five bands of the prediction range from {min(rise):.2g} to {max(rise):.2g} "
        f"(κ = {rounds.noise:g}).",
        fine="There is no evidence against a linear mean.",
        broken="The confidence set is for linear means: the bound on the mean cost may be too low for some contexts. "
        " Add the features that bend (squares, products, an intercept), or use guarantee = 'conformal', which "
        "needs no linearity.",
        bands=share,
        mean_residuals=rise,
    )


def _in_bands(across: Array, residual: Array) -> tuple[list[float], list[float]]:
    """The mean of what lies across, and of the residuals, in bands of equally many rounds."""
    parts = [part for part in np.array_split(np.argsort(across, kind="stable"), BANDS) if part.size]
    return [float(across[part].mean()) for part in parts], [float(residual[part].mean()) for part in parts]


# --- Drift: do the coefficients change over the rounds?

DRIFT_SIZES = (0.1, 0.4, 1.5)
"""Prior deviations of the change of each coefficient, as multiples of S; each gets an equal bet."""

STEPS = (0.25, 0.5, 0.75)
"""Shares of the horizon at which a sudden change is tried."""


def check_drift(rounds: Residuals, *, needed: float) -> Finding:
    """Bets on coefficients that change, gradually over the horizon or at once, against constant ones.

    The horizon must be fixed before the first outcome; a log that ended because of an outcome has none.
    """
    sizes = rounds.spec.coefficient_bound * np.array(DRIFT_SIZES)[:, None]
    passed = (rounds.number - rounds.number[0]) / rounds.horizon
    shapes = [passed, *(np.where(passed >= step, 1.0, 0.0) for step in STEPS)]
    logs = average([against_features(rounds, shape[:, None] * rounds.context, sizes) for shape in shapes], axis=0)
    early, late = _halves(rounds)
    moved = float(np.linalg.norm(late - early))
    return finding(
        "drift",
        Process(rounds.number[rounds.at - 1], logs, needed),
        tested=f"Are the {rounds.target}'s coefficients the same from the first round to the last?",
        found=f"Fitted to either half, they differ by a vector of norm {moved:.2g} (S = "
        f"{rounds.spec.coefficient_bound:g}).",
        fine="There is no evidence against constant coefficients. (Contexts may drift freely.)",
        broken="Old rounds no longer predict new ones: the confidence set, which uses them all, may miss the truth. "
        "Find out what changed, and restart from there.",
        moved=moved,
    )


def _halves(rounds: Residuals) -> tuple[np.ndarray, np.ndarray]:
    ridge = rounds.spec.ridge * np.eye(rounds.rows.shape[1])
    middle = len(rounds) // 2
    parts = (rounds.rows[:middle], rounds.outcome[:middle]), (rounds.rows[middle:], rounds.outcome[middle:])
    early, late = (np.linalg.solve(rows.T @ rows + ridge, rows.T @ outcome) for rows, outcome in parts)
    return early, late


# --- Dose-curve misfit: does the normalised outcome still depend on the dose?

RATIOS = (0.1, 0.4, 1.5)
"""Prior deviations of the true curve's relative departure from g."""

BASES = (0.003, 0.03)
"""Prior deviations of a cost that does not vanish at dose 0, as multiples of the threshold (for rewards: of S·L)."""

SMALLEST = 1e-4
"""The intensity below which 1/g is capped."""


def departures(rounds: Residuals) -> tuple[Array, Array]:
    """Features known before the outcome. If the true curve is h, the normalised mean is (h/g)⟨x,μ⟩: the prediction
    times a function of the dose. If C = b + g(α)(c + ξ), it is c + b/g.
    """
    shape = np.column_stack(
        [rounds.action, np.sqrt(rounds.action), np.log(np.maximum(rounds.intensity, SMALLEST)) / 4.0]
    )
    return rounds.fitted[:, None] * shape, 1.0 / np.maximum(rounds.intensity, SMALLEST)[:, None]


def check_dose_curve(rounds: Residuals, *, needed: float) -> Finding:
    """Bets on normalised means that depend on the dose, against those that do not (`mixture` in evidence.py)."""
    ratio, base = departures(rounds)
    spec = rounds.spec
    unit = spec.threshold if rounds.target == "cost" else spec.coefficient_bound * spec.context_bound
    by_ratio = against_features(rounds, ratio, np.array(RATIOS)[:, None])
    by_base = against_features(rounds, base, unit * np.array(BASES)[:, None])
    edges, means = _in_bands(rounds.action, rounds.residual)
    return finding(
        "dose_curve",
        Process(rounds.number[rounds.at - 1], average([by_ratio, by_base], axis=0), needed),
        tested=f"Once divided by g, does the mean {rounds.target} still depend on the dose: another curve, or a part "
        "that does not vanish at dose 0?",
        found=f"Mean residuals in {len(means)} bands of the action range from {min(means):.2g} to {max(means):.2g} "
        f"(κ = {rounds.noise:g}); actions reach from {rounds.action.min():.2g} to {rounds.action.max():.2g}.",
        fine="There is no evidence against g at the doses that were used. Doses that were never given prove nothing.",
        broken="The guarantee is for g: where the true curve lies above it, an action does more than its certificate "
        "says. Refit the curve (safedial calibrate) to a log that covers the dial, or state the baseline cost.",
        bands=edges,
        mean_residuals=means,
    )


# --- Noise that depends on context or action: is κ too small somewhere?

FIRST_CUT = 16
"""Rounds before the first cut; cuts are recomputed from earlier rounds whenever the number of rounds has doubled."""

SHARES = (1 / 3, 2 / 3)

SAME = 1e-9
"""Cuts with a smaller relative difference do not separate anything."""

FEATURES = 20
"""The most features with regions of their own: each region needs a separate fit."""


def regions(rounds: Residuals) -> dict[str, NDArray[np.bool_]]:
    """The region of each round: low and high thirds of the action, the prediction, the context's norm, and each of the
    first `FEATURES` features and its size.

    A round's cuts come only from earlier rounds, so its region is chosen before its outcome.
    """
    columns = {"action": rounds.action, "predicted " + rounds.target: rounds.fitted}
    columns["norm"] = np.linalg.norm(rounds.context, axis=1)
    for index, name in enumerate(rounds.names[:FEATURES]):
        columns[name] = rounds.context[:, index]
        columns[f"|{name}|"] = np.abs(rounds.context[:, index])
    masks = {}
    for name, values in columns.items():
        low, high = _cuts(values)
        if not name.startswith("|"):
            masks[f"low {name}"] = values <= low
        masks[f"high {name}"] = values >= high
    return masks


def _cuts(values: Array) -> tuple[Array, Array]:
    """The one-third and two-thirds quantiles of the earlier values, by round; nothing lies beyond them in the first
    rounds, nor where they are equal.
    """
    low, high = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    start = FIRST_CUT
    while start < len(values):
        end = min(2 * start, len(values))
        third, two_thirds = np.quantile(values[:start], SHARES)
        if two_thirds - third > SAME * abs(two_thirds):
            low[start:end], high[start:end] = third, two_thirds
        start = end
    return low, high


def check_noise(rounds: Residuals, *, needed: float) -> Finding:
    """`spread` within each region (evidence.py), averaged over regions; a region without rounds counts as 1."""
    places = regions(rounds)
    inside = {name: running(rounds.rows, rounds.outcome, rounds.at, mask) for name, mask in places.items()}
    by_region = {name: spread(moments, rounds.noise) for name, moments in inside.items()}
    logs = average(list(by_region.values()), axis=0)
    sizes = {name: _deviation(inside[name], rounds.rows.shape[1]) for name, mask in places.items() if mask.any()}
    worst = max(sizes, key=lambda name: by_region[name][-1], default="no part yet")
    return finding(
        "noise",
        Process(rounds.number[rounds.at - 1], logs, needed),
        title="Noise by context and action",
        tested=f"Is the {rounds.target}'s noise wider than κ = {rounds.noise:g} in some part of the contexts, the "
        "actions or the predictions?",
        found=f"The most suspect part is {worst}, with deviation {sizes.get(worst, 0.0):.3g}; over all parts from "
        f"{min(sizes.values(), default=0.0):.3g} to {max(sizes.values(), default=0.0):.3g}.",
        fine="There is no evidence against κ in any part. " + _narrower(rounds),
        broken=f"Where the noise is wider than κ, first at {worst}, costs can exceed the threshold more often than "
        "guaranteed. State the κ of the widest part; if small doses are the widest, state the sensor's noise "
        "(cost_sensor_noise).",
        worst=worst,
        deviations=sizes,
    )


def _narrower(rounds: Residuals) -> str:
    if rounds.target == "cost" and "learned noise" in facts(rounds.walk.policy.task):
        return (
            f"The margin '{rounds.spec.margin}' also assumes that the noise is the same in every part, which is not "
            "tested: compare the deviations by part."
        )
    return "Where the noise is narrower, κ only costs reward."


def _deviation(moments: Moments, dim: int) -> float:
    return float(np.sqrt(least_squares(moments)[-1] / max(float(moments.count[-1]) - dim, 1.0)))


# --- Influential rounds

NAMED = 5
"""How many rounds are named."""


def shifts(rounds: Residuals) -> Array:
    """‖μ̂ − μ̂₍₋ₜ₎‖_Σ: how far the last estimate moves, in the norm of the radius, if round t is left out.

    With h = xᵀΣ⁻¹x and r the fit's own residual it is |r|√h/(1 − h) (Sherman–Morrison).
    """
    leverage = np.vecdot(rounds.rows, np.linalg.solve(rounds.gram, rounds.rows.T).T)
    own = rounds.outcome - rounds.rows @ rounds.coef
    return np.abs(own) * np.sqrt(leverage) / np.maximum(1.0 - leverage, 1e-12)


def check_influence(rounds: Residuals, *, needed: float) -> Finding:
    """Σ_t f(p_t)/horizon with p_t = 2exp(−u²/2), u the residual beyond its slack in units of κ, and f(p) = 1/(2√p).

    p_t is at least uniform on the event of the confidence set, and f has mean 1 under the uniform law, so each term has
    mean at most 1/horizon. With future terms counted at their means, the sum is a supermartingale that starts at 1.
    """
    beyond = np.maximum(np.abs(rounds.residual) - rounds.slack, 0.0) / rounds.noise
    log_bets = np.minimum(-np.log(2.0) - 0.5 * np.minimum(np.log(2.0) - 0.5 * beyond**2, 0.0), 690.0)
    passed = np.minimum(np.arange(1, len(rounds) + 1) / rounds.horizon, 1.0)
    logs = np.log(np.cumsum(np.exp(log_bets)) / rounds.horizon + 1.0 - passed)[rounds.at - 1]
    moved = shifts(rounds)
    order = np.argsort(-moved, kind="stable")[:NAMED]
    top = [{"round": int(rounds.number[index]), "shift": float(moved[index])} for index in order]
    odd = [int(rounds.number[index]) for index in np.argsort(-beyond, kind="stable")[:NAMED] if beyond[index] > 4.0]
    words = (
        f"The largest residuals, beyond 4 κ and their slack, are in rounds {', '.join(map(str, odd))}. " if odd else ""
    )
    return finding(
        "influence",
        Process(rounds.number[rounds.at - 1], logs, needed),
        title="Influential rounds",
        tested=f"Is there a single round whose {rounds.target} no noise with constant κ = {rounds.noise:g} explains?",
        found=f"{words}Leaving out round {top[0]['round']} would move the estimate the most, by {top[0]['shift']:.2g} "
        f"in the norm of the radius (κ = {rounds.noise:g}).",
        fine="No round stands out.",
        broken="The estimate contains a wrong record, or an event outside the model. Look up those rounds and correct "
        "what is wrong (never drop a round because of its outcome: that voids the guarantee). A tiny dose magnifies "
        "any error.",
        top=top,
        odd_rounds=odd,
    )


# --- Confounded doses: were they chosen by the context?

BOLDNESS = np.array([0.1, 0.3, 1.0])
"""The values of k that get a bet."""

FIRST, GROWTH = 16, 1.15
"""Rounds before the first prediction (or three for each feature), and the growth from one prediction to the next."""

LEAST_VARIANCE = 1e-3
"""The least s², as a share of the doses' variance: doses by a strict rule leave none."""


class Assignment(NamedTuple):
    """How the doses of some rounds depend on their contexts.

    Attributes:
        log_evidence: ln E after each round.
        explained: the share of the doses' variance that a linear function of the context explains, in-sample.
        strongest: the column of the feature most correlated with the doses; −1 if nothing varies.
    """

    log_evidence: Array
    explained: float
    strongest: int


def assignment(context: Array, action: Array) -> Assignment:
    """Evidence that doses were chosen by the context, for rounds in order.

    >>> rng = np.random.default_rng(0)
    >>> weight, noise = rng.normal(size=(2, 100))
    >>> by_weight = assignment(weight[:, None], 0.5 + 0.1 * weight + 0.05 * noise)
    >>> bool(by_weight.log_evidence[-1] > 5.0), bool(assignment(weight[:, None], noise).log_evidence[-1] < 3.0)
    (True, True)
    """
    count = len(action)
    bets, start = np.zeros((len(BOLDNESS), count)), max(FIRST, 3 * context.shape[1])
    start += start % 2
    while start < count - 1:
        end = min(start + 2 * max(round(0.5 * (GROWTH - 1.0) * start), 1), count - count % 2)
        predicted, variance = _predicted(context[:start], action[:start], context[start:end])
        if variance > 0.0:
            apart = (action[start:end:2] - action[start + 1 : end : 2]) * (predicted[::2] - predicted[1::2])
            bets[:, start + 1 : end : 2] = np.log(2.0) - np.logaddexp(0.0, -BOLDNESS[:, None] * apart / variance)
        start = end
    explained, strongest = _described(context, action)
    return Assignment(average(np.cumsum(bets, axis=1), axis=0), explained, strongest)


def _predicted(context: Array, action: Array, later: Array) -> tuple[Array, float]:
    """The doses that ridge regression on earlier rounds predicts for later contexts, and their variance."""
    middle, size = context.mean(axis=0), context.std(axis=0)
    scale = np.where(size > 0.0, size, np.inf)
    rows, level = (context - middle) / scale, float(action.mean())
    coef = np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ (action - level))
    left = action - level - rows @ coef
    variance = float(left @ left) / (len(left) - rows.shape[1] - 1)
    return (later - middle) / scale @ coef, max(variance, LEAST_VARIANCE * float(action.var()))


def _described(context: Array, action: Array) -> tuple[float, int]:
    if len(action) < 2:
        return 0.0, -1
    spread = np.asarray(context.std(axis=0)) * action.std()
    varying = np.flatnonzero(spread > 0.0)
    if not varying.size:
        return 0.0, -1
    rows = context[:, varying] - context[:, varying].mean(axis=0)
    doses = action - action.mean()
    left = doses - rows @ np.linalg.lstsq(rows, doses, rcond=None)[0]
    share = 1.0 - float(left @ left) / float(doses @ doses)
    alone = np.abs(rows.T @ doses) / (len(action) * spread[varying])
    return max(share, 0.0), int(varying[np.argmax(alone)])


def words(found: Assignment, names: tuple[str, ...], count: int) -> str:
    """What was found, in a sentence."""
    told = f"In {count} rounds a linear function of the context explains {found.explained:.0%} of the doses' variance"
    named = f", {names[found.strongest]} the most" if 0 <= found.strongest < len(names) else ""
    return f"{told}{named}."


BROKEN = (
    "The choice of dose depended on the context. Then only the linear model separates the effect of the dose from that "
    "of the context: where the mean bends with a feature that guided the doses, the fitted dose curve bends instead. "
    "Reasons that are not in the log do the same, and no log shows them. Give some doses at random around the usual "
    "ones, or state the dose curve from prior knowledge."
)


def check_confounding(rounds: Residuals, *, needed: float) -> Finding:
    """`assignment` over the rounds without recorded advice: doses that this package advised follow the context by a
    known rule.
    """
    free = np.flatnonzero(rounds.free)
    found = assignment(rounds.context[free], rounds.action[free])
    passed = np.searchsorted(free, rounds.at - 1, side="right")
    logs = np.concatenate([[0.0], found.log_evidence])[passed]
    told = words(found, rounds.names, free.size)
    quiet = "There is no evidence that doses followed the context. No check can see reasons that are not in the log."
    details: dict[str, Any] = {"without_advice": int(free.size), "explained": found.explained}
    return finding(
        "confounding",
        Process(rounds.number[rounds.at - 1], logs, needed),
        title="Confounded doses",
        tested="In rounds without recorded advice: were doses chosen without the context, or does it predict them?",
        found=told if free.size else "Advice is on record for every round.",
        fine=quiet if free.size else "Doses that followed advice depend on the context by a known rule.",
        broken=BROKEN + " If safedial advised these doses, the log lacks its column `advised`.",
        **details,
    )


CHECKS = {
    "norms": check_norms,
    "tails": check_tails,
    "linearity": check_linearity,
    "drift": check_drift,
    "dose_curve": check_dose_curve,
    "confounding": check_confounding,
    "noise": check_noise,
    "influence": check_influence,
}
"""All checks of a certified guarantee, by name."""


def needed_evidence(level: float) -> float:
    """The evidence at which each check raises its flag.

    >>> round(needed_evidence(0.05), 1)
    177.8
    """
    return len(CHECKS) / ((1.0 - ESTIMATION_SHARE) * level)


def check(case: LogCase) -> tuple[Residuals, list[Finding]]:
    """The residuals, and all findings. By the union bound, the chance of any false flag in the whole life of a study is
    at most `level`, however the checks depend on each other; a tenth of the level covers the confidence set that
    `tails` and `influence` use. Checks of the reward are a separate family.
    """
    require_one_cost(case.spec)
    needed, given = needed_evidence(case.level), {"target": case.target, "horizon": case.horizon}
    slack_risk = ESTIMATION_SHARE * case.level
    rounds = read_residuals(case.log.prefix, case.spec, case.dose, **given, slack_risk=slack_risk)
    return rounds, [each(rounds, needed=needed) for each in CHECKS.values()]


# --- The page

SHOWN_REGIONS = 8


def _figure(rounds: Residuals, findings: Sequence[Finding]) -> Any:
    by_name = {each.name: each for each in findings}
    figure, axes = new_figure(columns=3, rows=2, height=2.5)
    draw_evidence(axes[0], findings)
    _residuals(axes[1], rounds, by_name["influence"])
    _tails(axes[2], rounds)
    _bands(axes[3], by_name["linearity"], rounds, f"predicted {rounds.target} per unit", rounds.fitted)
    _bands(axes[4], by_name["dose_curve"], rounds, "action", rounds.action)
    _regions(axes[5], by_name["noise"], rounds)
    legend_below(figure, *axes[0].get_legend_handles_labels(), ncols=len(findings))
    return figure


def _residuals(panel: Any, rounds: Residuals, found: Finding) -> None:
    scaled = rounds.residual / rounds.noise
    panel.plot(rounds.number, scaled, ".", color=BLUE, markersize=2, alpha=0.6)
    odd = np.isin(rounds.number, found.details["odd_rounds"])
    panel.plot(rounds.number[odd], scaled[odd], "o", color=ORANGE, markersize=5, fillstyle="none")
    height = np.sqrt(2.0 * np.log(2.0 * len(rounds)))
    panel.hlines([-height, height], 0, rounds.number[-1], color="grey", linestyle="--", linewidth=1)
    title(panel, "residuals before each update, in units of κ")
    panel.set_xlabel("round")


def _tails(panel: Any, rounds: Residuals) -> None:
    sizes = np.sort(np.abs(rounds.residual) / rounds.noise)
    share = 1.0 - np.arange(len(sizes)) / len(sizes)
    grid = np.linspace(0.0, max(4.0, float(sizes[-1])), 100)
    panel.step(sizes, share, where="post", color=BLUE, linewidth=1.2, label="residuals")
    bound = np.minimum(2.0 * np.exp(-0.5 * grid**2), 1.0)
    panel.plot(grid, bound, color="grey", linestyle="--", linewidth=1, label="at most, by κ")
    panel.set(yscale="log", ylim=(0.3 / len(sizes), 1.5), xlabel="q")
    title(panel, "share of residuals beyond q·κ")
    panel.legend(fontsize=6, frameon=False)


def _bands(panel: Any, found: Finding, rounds: Residuals, words: str, across: Any) -> None:
    panel.plot(across, rounds.residual, ".", color="0.75", markersize=2, zorder=0)
    panel.plot(found.details["bands"], found.details["mean_residuals"], "o-", color=ORANGE, markersize=4)
    panel.axhline(0.0, color="grey", linewidth=0.8)
    edge = 3.0 * rounds.noise
    panel.set(ylim=(-edge, edge), xlabel=words)
    title(panel, f"{found.title.lower()}: residuals, and their means in bands")


def _regions(panel: Any, found: Finding, rounds: Residuals) -> None:
    sizes = sorted(found.details["deviations"].items(), key=lambda pair: pair[1])[-SHOWN_REGIONS:]
    panel.barh([name for name, _ in sizes], [size for _, size in sizes], color=FILL, height=0.6)
    panel.axvline(rounds.noise, color="grey", linestyle="--", linewidth=1)
    panel.tick_params(axis="y", labelsize=6)
    title(panel, "noise by region (dashed: κ)")
    panel.set_xlabel("deviation")


def _guarantee(rounds: Residuals) -> str:
    spec, margins = rounds.spec, "".join(f"; {each}" for each in margin_assumptions(rounds.spec))
    return (
        f"{rounds.target} checked. The spec guarantees P(cost &gt; {spec.threshold:g}) ≤ {spec.guaranteed_risk:.3g} in "
        f"{GUARANTEES[spec.guarantee].span} if S = {spec.coefficient_bound:g}, L = {spec.context_bound:g}, κ = "
        f"{spec.cost_noise:g} (cost) and the dose curve hold, the mean is linear, and noise is sub-Gaussian given the "
        f"past{html.escape(margins)}."
    )


TEST = LogTest(
    check=check,
    targets=("cost", "reward"),
    watch=watch_counts,
    figure=_figure,
    drawn="Evidence over time, residuals, tails, residuals by prediction and action, noise by region",
    guarantee=_guarantee,
    slack="; a tenth of it covers the confidence set that two of the checks use",
)
