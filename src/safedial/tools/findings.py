"""The result of a check: what it tested and found, what that means for the guarantee, and how strong the evidence is.

Evidence against a linear mean with κ-sub-Gaussian noise is valid at any time. Two e-processes: under its null, each has
mean at most 1 at every stopping time; by Ville's inequality it ever reaches 1/a with probability at most a. Rows x_t,
outcomes y_t = ⟨x_t, μ*⟩ + ξ_t, ξ_t κ-sub-Gaussian given the past and x_t.

**Richer means** (`mixture`). For predictable features φ_t and a fixed ν, exp((‖y − Xμ*‖² − ‖y − Φν‖²)/2κ²) is a
supermartingale (docs/design.md), and so is its mean over ν ~ N(0, P). μ* is unknown; whatever it is, ‖y − Xμ*‖² ≥ R,
the least over all μ that the null allows. With Φ̃ = ΦP^½,

    ln E_t = (R − yᵀ(I + Φ̃Φ̃ᵀ/κ²)⁻¹y)/2κ² − ½ ln det(I + Φ̃ᵀΦ̃/κ²).

R is the residual sum of squares if every μ is allowed, and max_a (yᵀ(I + XXᵀ/a)⁻¹y − aS²) if ‖μ‖ ≤ S: the dual of
constrained least squares, where any a gives a valid bound.

**Wider noise** (`spread`). E exp(sξ²/2κ²) = E_Z E exp(√s Zξ/κ) ≤ E_Z exp(sZ²/2) = (1 − s)^−½ for Z standard normal and
0 ≤ s < 1. So over any predictable choice of n rounds, ln E_t = sR/2κ² + (n/2) ln(1 − s), R as above over these rounds.

No confidence set is needed, because R bounds the unknown part. All is a function of moments that add over rounds.

The checks use normalised outcomes, and residuals taken before each round's update:

    y_t = (C_t − b₀)/g_c(α_t)   or   R_t/g_r(α_t)        e_t = y_t − ⟨x_t, μ̂_{t−1}⟩

μ̂_{t−1} is the learner's estimate from the rounds before t, so e_t = ξ_t + ⟨x_t, μ* − μ̂_{t−1}⟩: noise, and an error
that was fixed before the noise was drawn. Residuals of a fit that includes the round are smaller than the noise and
would hide what the checks look for. Rounds at intensity 0 carry no information and are left out. With sensor noise
every row is multiplied by √ω (bounds/estimate.py), which makes its noise κ-sub-Gaussian again.

How an outcome rises with the setting, given the context: slopes with their errors, in bands of the setting.

    y = h(x) + Σ_b slope_b·(how much of band b lies below s) + noise        h: the context, its squares and products

With y = ln cost and s = ln setting the slopes are elasticities. Rows of one unit (a patient) may be compared with each
other alone: unit means are then taken off every column. Errors allow for noise of any size at any row, for correlated
rows of a unit, and for single rows with much influence (HC3, and its form for clusters). For rounds that a policy
played, what it scaled belongs to the context; what remains of the setting is how the scale moved.

A slope is an average over units. `spread` is the standard deviation of the units' own slopes: within units from the
slopes themselves; without units from noise that grows with the distance of settings, where that is clearly seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds import estimate
from safedial.bounds.confidence import RADII
from safedial.errors import require
from safedial.io import card
from safedial.model.dose import Dose
from safedial.model.namespace import Array
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.rounds.log_file import Log

LARGEST_LOG = 700.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check's result.

    Attributes:
        name, title: as in `CHECKS`.
        evidence: the largest value of the e-process: about 1 while the assumption holds; None if the check is not a
            bet.
        needed: the evidence at which the check raises its flag.
        word: "FLAG" or "quiet"; if the check is not a bet also "shown" (it raises no flag) or "not applicable". For a
            bracket guarantee "contradicted", which is a flag, "doubtful" or "ok".
        tested, found, means: three sentences for the reader.
        rounds, curve: the e-process over time.
        details: numbers behind `found`, plain values.
    """

    name: str
    title: str
    evidence: float | None = None
    needed: float | None = None
    word: str
    tested: str
    found: str
    means: str
    rounds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    curve: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    details: dict[str, Any] = field(repr=False)

    @property
    def flagged(self) -> bool:
        return self.word in ("FLAG", "contradicted")

    def _repr_html_(self) -> str:
        return card(f"{self.title}: {self.word}", notes=[self.tested, self.found, self.means])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        words = {name: getattr(self, name) for name in ("name", "title", "evidence", "needed", "flagged", "word")}
        return {**words, "tested": self.tested, "found": self.found, "means": self.means, **self.details}


class Process(NamedTuple):
    """An e-process over time, in logarithms, and the evidence at which it raises a flag."""

    rounds: Any
    log_evidence: Any
    needed: float


def finding(name: str, process: Process, *, tested: str, found: str, fine: str, broken: str, **more: Any) -> Finding:
    """A finding from an e-process; `fine` and `broken` say what it means for the guarantee, `more` is for `stated`."""
    curve = np.exp(np.minimum(np.asarray(process.log_evidence, dtype=float), LARGEST_LOG))
    largest = float(curve.max()) if curve.size else 1.0
    word, means = ("FLAG", broken) if largest >= process.needed else ("quiet", fine)
    result = stated(name, word, tested=tested, found=found, means=means, **more)
    rounds = np.asarray(process.rounds, dtype=float)
    return replace(result, evidence=largest, needed=process.needed, rounds=rounds, curve=curve)


def stated(name: str, word: str, *, title: str = "", tested: str, found: str, means: str, **details: Any) -> Finding:
    """A finding of a check that is not a bet: `word` states its result. By default its title is its name."""
    title = title or name.replace("_", " ").capitalize()
    return Finding(name=name, title=title, word=word, tested=tested, found=found, means=means, details=details)


def not_applicable(reasons: Mapping[str, str]) -> list[Finding]:
    """Checks that do not apply, with the reason, by name."""
    told = {"tested": "", "found": "Not applicable."}
    return [stated(name, "not applicable", **told, means=why) for name, why in reasons.items()]


def log_of(path: Any) -> Any:
    """The logarithm of evidence, which may be 0."""
    return np.log(np.maximum(path, 1e-300))


def flag_at(findings: Sequence[Finding]) -> float:
    """The evidence at which the bets among the findings raise a flag."""
    return next(each.needed for each in findings if each.needed is not None)


def shown(evidence: float | None) -> str:
    """Evidence formatted for reading.

    >>> shown(0.3), shown(1234.5), shown(1.0), shown(3e54), shown(None)
    ('0.3', '1,234', '1', '10^54', '')
    """
    if evidence is None:
        return ""
    if evidence >= 1e6:
        return f"10^{math.floor(math.log10(evidence))}"
    return f"{evidence:,.0f}" if evidence >= 100 else f"{evidence:.2g}"


# --- Evidence against a linear mean with κ-sub-Gaussian noise, valid at any time

SPREADS = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.9])
"""The values of s, each with an equal bet: from slightly to grossly wider noise."""

EMPTY = 1e-12
"""Eigenvalues of the scaled moments below this are rounding error."""

POINTS = 40
"""The number of rounds at which evidence is taken."""


class Moments(NamedTuple):
    """Σ φφᵀ, Σ φy, Σ y² and the number of rounds; a leading axis for points in time."""

    gram: Any
    rhs: Any
    square: Any
    count: Any


def marks(count: int, points: int = POINTS) -> NDArray[np.int64]:
    """The rounds at which evidence is taken: at most `points`, evenly spaced, ending with `count`."""
    return np.unique(np.linspace(0, count, min(points, count) + 1).round().astype(np.int64))[1:]


def running(features: Array, outcomes: Array, at: NDArray[np.int64], used: Any = None) -> Moments:
    """The moments after each of the rounds `at`; `used` masks the rounds that count."""
    chosen = np.ones(len(outcomes)) if used is None else np.asarray(used, dtype=float)
    kept, told = features * chosen[:, None], outcomes * chosen
    pieces = list(zip((0, *at[:-1]), at, strict=True))
    gram = np.cumsum([kept[start:end].T @ kept[start:end] for start, end in pieces], axis=0)
    rhs = np.cumsum([kept[start:end].T @ told[start:end] for start, end in pieces], axis=0)
    return Moments(gram, rhs, np.cumsum(told**2)[at - 1], np.cumsum(chosen)[at - 1])


def least_squares(moments: Moments) -> Array:
    """R if every coefficient is allowed: the residual sum of squares.

    Features are first scaled to equal length, so that their units do not decide which directions count as empty.
    """
    sizes = np.sqrt(np.maximum(np.linalg.diagonal(moments.gram), 1e-300))
    values, turn = np.linalg.eigh(moments.gram / (sizes[..., :, None] * sizes[..., None, :]))
    turned = (np.swapaxes(turn, -1, -2) @ (moments.rhs / sizes)[..., None])[..., 0]
    sound = values > EMPTY
    explained = np.where(sound, turned**2 / np.where(sound, values, 1.0), 0.0)
    return np.maximum(moments.square - explained.sum(axis=-1), 0.0)


def bounded_least_squares(moments: Moments, bound: float) -> Array:
    """R if ‖μ‖ ≤ S: the largest dual value over a grid of a, or the plain residual sum of squares if that is larger."""
    values, turn = np.linalg.eigh(moments.gram)
    turned = (np.swapaxes(turn, -1, -2) @ moments.rhs[..., None])[..., 0] ** 2
    size = np.maximum(values[..., -1:], 1e-300)
    best = least_squares(moments)
    for share in np.logspace(-6, 3, 91):
        ridge = share * size
        dual = moments.square - (turned / (np.maximum(values, 0.0) + ridge)).sum(axis=-1) - ridge[..., 0] * bound**2
        best = np.maximum(best, dual)
    return best


def mixture(moments: Moments, prior: Array, noise: float, least: Array) -> Array:
    """ln E_t for features whose coefficients have prior deviations `prior`, against a null with R = `least`."""
    gram = prior[:, None] * moments.gram * prior / noise**2
    rhs = prior * moments.rhs / noise**2
    core = np.eye(len(prior)) + gram
    explained = np.vecdot(rhs, np.linalg.solve(core, rhs[..., None])[..., 0])
    return 0.5 * (least / noise**2 - moments.square / noise**2 + explained - np.linalg.slogdet(core)[1])


def spread(moments: Moments, noise: float) -> Array:
    """ln E_t against noise wider than κ over the rounds that the moments count."""
    ratio = least_squares(moments) / (2.0 * noise**2)
    bets = SPREADS * ratio[..., None] + 0.5 * np.log1p(-SPREADS) * np.asarray(moments.count)[..., None]
    return average(bets)


def average(logs: Any, axis: int = -1) -> Array:
    """ln of the mean of e-values given by their logarithms: again an e-value.

    >>> float(round(average(np.log([1.0, 3.0])), 6)) == float(round(np.log(2.0), 6))
    True
    """
    values = np.asarray(logs, dtype=float)
    peak = np.max(values, axis=axis, keepdims=True)
    return np.squeeze(peak, axis=axis) + np.log(np.mean(np.exp(values - peak), axis=axis))


# --- What the checks use: normalised outcomes, and residuals taken before each round's update

Target = Literal["cost", "reward"]

ESTIMATION_SHARE = 0.1
"""The share of a check's level that its confidence set uses."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The informative rounds of a log, in order; n rows.

    Attributes:
        number: the rounds' numbers in the log.
        context: (n, d), as the learner saw them; all_norms: of every row, informative or not.
        rows, outcome: √ω·context and √ω·y.
        fitted: ⟨x_t, μ̂_{t−1}⟩, known before the outcome.
        residual: √ω·e_t. slack: what its error part is at most, β_t·width_t·√ω, with probability ≥ 1 − `slack_risk`.
        free: which rounds have no recorded advice.
        noise: κ of the target. horizon: the planned number of rounds, fixed in advance.
    """

    target: Target
    spec: SafetySpec
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


def read_rounds(
    log: Log,
    spec: SafetySpec,
    dose: Dose,
    *,
    target: Target = "cost",
    horizon: int | None = None,
    slack_risk: float = 0.005,
) -> Rounds:
    """Normalise a log and process it round by round, as the learner would.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> from safedial.model.dose import as_dose
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=200)
    >>> rounds = read_rounds(log, spec, as_dose(None))
    >>> len(rounds), bool(abs(rounds.residual[100:].std() - 0.3) < 0.05)
    (200, True)
    """
    require(target in ("cost", "reward"), "target", target, "must be cost or reward")
    lacking = [name for name in CONSTANTS if getattr(spec, name) is None]
    rule = "are not in the spec, and the checks test constants"
    require(not lacking, "spec", lacking, rule, "a conformal guarantee assumes exchangeability: an Agent watches it")
    planned = len(log) if horizon is None else horizon
    rule = f"must be a whole number of rounds, at least the log's {len(log)}"
    require(
        type(planned) is int and planned >= len(log), "horizon", planned, rule, "it is fixed before the first round"
    )
    reward_intensity = np.asarray(dose.reward.effect(log.action), dtype=float)
    cost_intensity = np.asarray(dose.cost.effect(log.action), dtype=float)
    weight = np.asarray(estimate.sample_weight(spec, reward_intensity, cost_intensity, log.context), dtype=float)
    used = np.flatnonzero(weight > 0.0)
    least = 2 * log.dim + 8
    rule = f"rounds with a dose are too few: at least {least} are needed at dimension {log.dim}"
    require(used.size >= least, "log", used.size, rule)
    cost = (log.cost - log.baseline_cost)[used] / cost_intensity[used]
    reward = log.reward[used] / reward_intensity[used]
    require(np.all(np.isfinite(cost)) and np.all(np.isfinite(reward)), "log", "outcomes", "divided by g are not finite")
    noise = float(spec.cost_noise if target == "cost" else spec.reward_noise)
    root = np.sqrt(weight[used])
    walk = _walk(
        log.context[used], reward, cost, weight[used], spec=replace(spec, estimation_risk=slack_risk), noise=noise
    )
    outcome, fitted = (cost, walk["cost"]) if target == "cost" else (reward, walk["reward"])
    rows = root[:, None] * log.context[used]
    return Rounds(
        target=target,
        spec=spec,
        noise=noise,
        horizon=planned,
        number=log.round[used],
        all_norms=np.linalg.norm(log.context, axis=1),
        names=log.names,
        context=log.context[used],
        action=log.action[used],
        free=np.isnan(log.advised[used]),
        intensity=(cost_intensity if target == "cost" else reward_intensity)[used],
        weight=weight[used],
        rows=rows,
        outcome=root * outcome,
        fitted=fitted,
        residual=root * (outcome - fitted),
        slack=root * walk["slack"],
        gram=rows.T @ rows + spec.ridge * np.eye(log.dim),
        coef=walk["cost_coef"] if target == "cost" else walk["reward_coef"],
    )


def _walk(
    contexts: Array, rewards: Array, costs: Array, weights: Array, *, spec: SafetySpec, noise: float
) -> dict[str, Any]:
    """Predictions before each update, and the radius times the width, by the learner's recursion."""
    state = estimate.init(contexts.shape[1], ridge=spec.ridge)
    fitted = {name: np.empty(len(contexts)) for name in ("reward", "cost", "slack")}
    for index, context in enumerate(contexts):
        seen = estimate.predict(state, context)
        fitted["reward"][index], fitted["cost"][index] = seen.reward, seen.cost
        fitted["slack"][index] = RADII["mixture"](noise, seen, spec) * seen.width
        state = estimate.update(state, seen, rewards[index], costs[index], weights[index])
    return {**fitted, "reward_coef": state.reward_coef, "cost_coef": state.cost_coef}


# --- How an outcome rises with the setting, given the context

BANDS = 3
ROWS_PER_BAND = 20
ROWS_PER_TERM = 5
"""Rows needed per term before squares and products of the context are used."""

NARROW = 0.02
"""The least width of a band, as a share of all settings: many rounds may have the start."""

FAINT = 1e-6
"""A slope is told if context and other bands leave more than this share of its column."""


class Slope(NamedTuple):
    """A slope over settings from `start` to `end`, its standard error and the degrees of freedom."""

    start: float
    end: float
    estimate: float
    error: float
    free: float

    def interval(self, level: float = 0.05) -> tuple[float, float]:
        """Student's interval, which misses with probability `level`."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.free, 1.0 - 0.5 * level)) * self.error
        return self.estimate - half, self.estimate + half


class Slopes(NamedTuple):
    """The slope over all settings, those of the bands (lowest first), and the spread of the units' own slopes."""

    whole: Slope
    bands: tuple[Slope, ...]
    spread: float


def slopes(outcome: Array, setting: Array, context: Array, *, unit: Any = None) -> Slopes | None:
    """Slopes of the outcome in the setting, for rows (n,) and contexts (n, d); None if the settings say nothing.

    >>> rng = np.random.default_rng(0)
    >>> weight, dose = rng.uniform(-1, 1, (2, 300))
    >>> found = slopes(2.0 * dose + weight**2 + 0.1 * rng.normal(size=300), dose, weight[:, None])
    >>> [round(end, 1) for end in found.whole.interval()], len(found.bands)
    ([2.0, 2.0], 3)
    """
    groups = np.arange(len(setting)) if unit is None else np.unique(unit, return_inverse=True)[1]
    ends = _edges(setting)
    parts = [np.clip(setting, low, high) - low for low, high in pairwise(ends)]
    columns, terms = np.column_stack([setting, *parts]), context_terms(context)
    if unit is not None:
        outcome, columns, terms = (_within(part, groups) for part in (outcome, columns, terms))
        terms = basis(terms[:, np.linalg.norm(terms, axis=0) > FAINT])  # what is constant within units is gone
    whole = _fit(outcome, columns[:, :1], terms, groups)
    if not whole.clear[0]:
        return None
    bands = _fit(outcome, columns[:, 1:], terms, groups)
    spread = _spread_between(whole, setting) if unit is None else _spread_within(whole, groups)
    found = [bands.at(place, pair) for place, pair in enumerate(pairwise(ends)) if bands.clear[place]]
    return Slopes(whole.at(0, (ends[0], ends[-1])), tuple(found), spread)


class _Fit(NamedTuple):
    """Slopes of columns with their errors, whether each can be told, the first column and what is left unexplained."""

    slope: Array
    error: Array
    clear: NDArray[np.bool_]
    free: float
    column: Array
    left: Array

    def at(self, place: int, ends: tuple[float, float]) -> Slope:
        return Slope(*ends, float(self.slope[place]), float(self.error[place]), self.free)


def _fit(outcome: Array, columns: Array, terms: Array, groups: Any) -> _Fit:
    """Least squares on the columns, with the terms' part taken off both."""
    rows, told = (part - terms @ (terms.T @ part) for part in (columns, outcome))
    inverse = np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True)
    slope = inverse @ (rows.T @ told)
    left = told - rows @ slope
    leverage = (terms**2).sum(axis=1) + np.vecdot(rows @ inverse, rows)
    sums = np.zeros((groups.max() + 1, columns.shape[1]))
    np.add.at(sums, groups, rows * (left / np.maximum(1.0 - leverage, 0.05))[:, None])
    error = np.sqrt(np.maximum((inverse @ (sums.T @ sums) @ inverse).diagonal(), 0.0))
    own = inverse.diagonal() * (columns**2).sum(axis=0)
    clear = (own > 0.0) & (own < 1.0 / FAINT) & (error > 0.0)
    used = terms.shape[1] + columns.shape[1] if len(sums) == len(left) else 1
    return _Fit(slope, error, clear, float(max(len(sums) - used, 1)), rows[:, 0], left)


def _spread_within(fit: _Fit, groups: Any) -> float:
    """√τ² by moments: a unit's score has variance τ²S² + σ²S, S its sum of squares; σ² from the units' own lines."""
    size, score, total = (
        np.bincount(groups, weights=part) for part in (fit.column**2, fit.column * fit.left, fit.left**2)
    )
    used = size > FAINT * size.max()
    free = (np.bincount(groups)[used] - 2).clip(min=0).sum()
    own = (total[used] - score[used] ** 2 / size[used]).sum()
    noise = own / free if free else 0.0
    return math.sqrt(max(((score[used] ** 2).sum() - noise * size[used].sum()) / (size[used] ** 2).sum(), 0.0))


def _spread_between(fit: _Fit, setting: Array) -> float:
    """√ of the coefficient of s² in squared residuals, wherever the units' lines cross; 0 unless twice its error."""
    middle = setting - setting.mean()
    design = np.column_stack([np.ones(len(setting)), middle, middle**2])
    inverse = np.linalg.pinv(design.T @ design)
    square = fit.left**2
    coef = inverse @ (design.T @ square)
    scores = design * (square - design @ coef)[:, None]
    error = math.sqrt(max(float((inverse @ (scores.T @ scores) @ inverse)[2, 2]), 0.0))
    return math.sqrt(coef[2]) if coef[2] > 2.0 * error else 0.0


def _edges(setting: Array) -> list[float]:
    """The ends of bands with equally many rows, each with `ROWS_PER_BAND` at least."""
    count = max(1, min(BANDS, len(setting) // ROWS_PER_BAND))
    first, *inner, last = np.quantile(setting, np.linspace(0.0, 1.0, count + 1)).tolist()
    marks, gap = [first], NARROW * (last - first)
    for mark in inner:
        if mark - marks[-1] > gap and last - mark > gap:
            marks.append(mark)
    return [*marks, last]


def _within(values: Array, groups: Any) -> Array:
    """Each row less the mean of its unit."""
    counts = np.bincount(groups)
    columns = values.reshape(len(values), -1)
    means = np.column_stack([np.bincount(groups, weights=column) / counts for column in columns.T])
    return values - means[groups].reshape(values.shape)


def context_terms(context: Array) -> Array:
    """A basis of 1, the context, and its squares and products where there are rows enough."""
    first, second = np.triu_indices(context.shape[1])
    plain = basis(np.column_stack([np.ones(len(context)), context]))
    rich = basis(np.column_stack([plain, context[:, first] * context[:, second]]))
    return rich if len(context) >= ROWS_PER_TERM * (rich.shape[1] + 2) else plain


def basis(columns: Array) -> Array:
    """Orthonormal columns with the same span; units and repeated columns do not matter."""
    if not columns.shape[1]:
        return columns
    scaled = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    return left[:, sizes > 1e-9 * sizes[0]]
