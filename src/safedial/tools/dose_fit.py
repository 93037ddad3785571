"""Fits dose curves and chooses among their families; proposes S, L and κ, each with its reason.

**Families.** A logistic map takes the real line to the range of each parameter, so that a fit needs no bounds:
low·(high/low)^σ(t) for scales, low + (high − low)·σ(t) for locations.

**Fits** of one curve to one outcome, with the coefficients profiled out:

    y_t = g_p(α_t)⟨x_t, μ⟩ + noise       noise of deviation κ·g_p(α_t) ("proportional", the paper's) or σ ("constant")

For a fixed shape p, μ is the weighted least-squares fit and the deviation is the root mean square of its residuals. The
shape minimises the Gaussian negative log-likelihood per row with the Jacobian of dividing by g if proportional:

    ℓ(p) = ln κ̂_p + mean ln g_p(α_t)        or        ℓ(p) = ln σ̂_p

**If the context guided the doses.** `fit_curve` assumes a mean that is linear in the context and noise proportional to
the dose. If doses are random, errors in either hardly affect the curve; if the context guides them, both bend it. Here
neither assumption is needed:

    y = g(α)^s·c(x) + noise       c(x) any combination of the context, its squares and products, and the square and the
                                  cube of p(x), the prediction of ln g(α) from these

For every s, with ρ(·) the residual of least squares on the terms of c multiplied by g^s, the score of s

    Z(s) = Σ ρ(y)·ρ(g^s ln g) / √Σ (ρ(y)·ρ(g^s ln g))²

is about standard normal if g^s is the true curve, whatever the size of the noise at a dose or context. The data allow
the s with |Z(s)| ≤ z. The terms with p(x), which represents the rule behind the doses, remove the effect of that rule
even if c has another form (as in E-estimation: Robins, Mark and Newey, Biometrics 1992). The method assumes that the
context holds every reason behind a dose, which no data can show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.model.dose import DoseCurve, hill, identity, logistic, power, tabulated
from safedial.tools.slopes import basis, context_terms

Array = NDArray[Any]

KNOTS = 4
"""The most inner knots of a spline."""

FULL = 0.95
"""A spline is fitted only if doses reach this share of the dial, because its last piece is free."""


class Family(NamedTuple):
    """A family: `make` turns its `size` free numbers into a curve; fits begin at `starts`."""

    name: str
    size: int
    make: Callable[[Array], DoseCurve]
    starts: tuple[tuple[float, ...], ...]


def families(actions: Array) -> dict[str, Family]:
    """The families that these dose levels can determine: one level for the height, one more for every free number.

    >>> list(families(np.array([0.2, 1.0, 0.2])))
    ['identity', 'power', 'emax', 'spline']
    """
    levels = np.unique(actions[actions > 0.0])
    every = [
        Family("identity", 0, lambda _: identity(), ((),)),
        Family("power", 1, lambda free: power(_scale(free[0], 0.1, 10.0)), ((0.0,),)),
        Family("emax", 1, lambda free: hill(_scale(free[0], 0.01, 100.0)), ((-0.5,), (1.0,))),
        Family("logistic", 2, _logistic, ((0.0, 0.0), (-1.0, 1.0))),
        Family("hill", 2, _hill, ((-0.5, 0.0), (-0.5, 1.5))),
    ]
    inner = _knots(levels)
    if inner.size and levels[-1] >= FULL:
        every.append(_spline(np.concatenate([[0.0], inner, [1.0]])))
    return {each.name: each for each in every if each.size < levels.size}


def _knots(levels: Array) -> Array:
    """Inner knots: the lower levels themselves if they are few, else the levels nearest to even spacing."""
    lower = levels[levels < FULL]
    if lower.size <= KNOTS:
        return lower
    even = np.linspace(0.0, 1.0, KNOTS + 2)[1:-1]
    return np.unique(lower[np.argmin(np.abs(lower[:, None] - even), axis=0)])


def _logistic(free: Array) -> DoseCurve:
    return logistic(-0.5 + 2.0 * _share(free[0]), _scale(free[1], 0.5, 40.0))


def _hill(free: Array) -> DoseCurve:
    return hill(_scale(free[0], 0.01, 100.0), _scale(free[1], 0.2, 10.0))


def _spline(knots: Array) -> Family:
    """Monotone through the knots: it rises by shares e^t/Σe^t, the last t being 0; fits start at the identity."""

    def make(free: Array) -> DoseCurve:
        shares = np.exp(np.clip(np.append(free, 0.0), -8.0, 8.0))
        heights = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
        heights[-1] = 1.0
        return tabulated(knots.tolist(), heights.tolist())

    steps = np.log(np.diff(knots))
    return Family("spline", len(knots) - 2, make, (tuple(float(step) for step in steps[:-1] - steps[-1]),))


def _share(free: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.clip(free, -30.0, 30.0))))


def _scale(free: float, low: float, high: float) -> float:
    return float(low * (high / low) ** _share(free))


# --- Fits one curve to one outcome, with the coefficients profiled out

Noise = Literal["proportional", "constant"]
SMALLEST = 1e-12


class Data(NamedTuple):
    """Rows with a dose: contexts (n, d), actions and one outcome."""

    context: Array
    action: Array
    outcome: Array

    def rows(self, chosen: Array) -> Data:
        return Data(self.context[chosen], self.action[chosen], self.outcome[chosen])


class Fit(NamedTuple):
    """A fitted curve: its free numbers, the coefficients, the noise's deviation and ℓ."""

    family: str
    free: Array
    curve: DoseCurve
    coef: Array
    deviation: float
    loss: float


def fit_curve(family: Family, data: Data, noise: Noise, start: Array | None = None) -> Fit:
    """The curve of the family that fits best; `start` replaces the family's own starts."""
    from scipy.optimize import minimize

    starts = [start] if start is not None else [np.array(each) for each in family.starts]
    if family.size == 0:
        return _profile(family, np.empty(0), data, noise)

    def loss(free: Array) -> float:
        return _profile(family, free, data, noise).loss

    options = {"eps": 1e-5, "ftol": 1e-9, "maxiter": 60}
    found = [minimize(loss, each, method="L-BFGS-B", options=options) for each in starts]
    return _profile(family, min(found, key=lambda each: each.fun).x, data, noise)


def scores(fit: Fit, data: Data, noise: Noise) -> Array:
    """ℓ of each row under a fit made from other rows: half a squared residual, and the logarithms."""
    rows, outcome, logs = _scaled(fit.curve, data, noise)
    return 0.5 * ((outcome - rows @ fit.coef) / fit.deviation) ** 2 + np.log(fit.deviation) + logs


def residuals(fit: Fit, data: Data, noise: Noise) -> Array:
    rows, outcome, _ = _scaled(fit.curve, data, noise)
    return outcome - rows @ fit.coef


def covariance(fit: Fit, data: Data, noise: Noise) -> Array:
    """The covariance of the coefficients, for the fitted curve."""
    rows, _, _ = _scaled(fit.curve, data, noise)
    return fit.deviation**2 * np.linalg.pinv(rows.T @ rows)


def _scaled(curve: DoseCurve, data: Data, noise: Noise) -> tuple[Array, Array, Array]:
    """Rows and outcomes scaled to noise of equal deviation, and what the scaling adds to ℓ."""
    intensity = np.maximum(np.asarray(curve.effect(data.action), dtype=float), SMALLEST)
    if noise == "constant":
        return intensity[:, None] * data.context, data.outcome, np.zeros(len(intensity))
    return data.context, data.outcome / intensity, np.log(intensity)


def _profile(family: Family, free: Array, data: Data, noise: Noise) -> Fit:
    curve = family.make(free)
    rows, outcome, logs = _scaled(curve, data, noise)
    gram = rows.T @ rows
    gram[np.diag_indices_from(gram)] += 1e-10 * max(float(np.trace(gram)), SMALLEST)
    coef = np.linalg.solve(gram, rows.T @ outcome)
    left = outcome - rows @ coef
    deviation = max(float(np.sqrt(left @ left / len(left))), SMALLEST)
    return Fit(family.name, free, curve, coef, deviation, float(np.log(deviation) + logs.mean()))


# --- Chooses the family of a curve by cross-validation, and its uncertainty by the bootstrap

FOLDS = 5
GRID = np.linspace(0.0, 1.0, 41)
BAND = (0.05, 0.95)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A curve for one outcome.

    Attributes:
        fit: the chosen family, fitted to all rows.
        table: by family: free numbers, held-out loss per row, its difference from the best and the difference's
            standard error.
        grid, low, high: actions, and the 90 % band of g there by the bootstrap, widened to the rivals.
        error: ρ; in 95 % of bootstrap samples and for all rivals |c·g*(α)/ĝ(α) − 1| ≤ ρ at all doses of the log, where
            the constant c, which the coefficients absorb, makes the mean ratio 1.
        rivals: the other families within one standard error of the best; if there is none and the chosen one has no
            free number, so that the bootstrap has nothing to vary, the next best.
    """

    fit: Fit
    table: dict[str, dict[str, float]]
    grid: Array = field(repr=False)
    low: Array = field(repr=False)
    high: Array = field(repr=False)
    error: float
    rivals: tuple[str, ...]


def choose_curve(
    data: Data,
    *,
    noise: Noise,
    name: str = "auto",
    resamples: int = 100,
    progress: Callable[[int], None] | None = None,
) -> Chosen:
    """The simplest family whose held-out loss is within one standard error of the best, a spline only if no other is;
    then the bootstrap.

    Rows are assigned to folds at random. The standard error of the difference is over pairs of rows.
    """
    known = families(data.action)
    tried = known if name == "auto" else {name: known[name]}
    losses = {each: _held_out(family, data, noise, progress) for each, family in tried.items()}
    best = min(losses, key=lambda each: float(losses[each].mean()))
    table = {each: _compared(tried[each], losses[each], losses[best]) for each in tried}
    near = [each for each, row in table.items() if row["difference"] <= row["error"] or each == best]
    chosen = min(near, key=lambda each: (each == "spline", tried[each].size, table[each]["loss"]))
    fit = fit_curve(tried[chosen], data, noise)
    curves = _resampled(fit, data, noise, family=tried[chosen], resamples=resamples, progress=progress)
    others = sorted((each for each in tried if each != chosen), key=lambda each: table[each]["loss"])
    close = [each for each in others if each in near] or others[: 1 if tried[chosen].size == 0 else 0]
    rivals = {each: fit_curve(tried[each], data, noise).curve for each in close}
    low, high = np.quantile([curve.effect(GRID) for curve in curves], BAND, axis=0)
    heights = [low, high, *(np.asarray(curve.effect(GRID)) for curve in rivals.values())]
    bootstrap = float(np.quantile(departures(fit, [curve.effect for curve in curves], data.action), 0.95))
    return Chosen(
        fit=fit,
        table=table,
        grid=GRID,
        low=np.min(heights, axis=0),
        high=np.max(heights, axis=0),
        error=max([bootstrap, *departures(fit, [curve.effect for curve in rivals.values()], data.action)]),
        rivals=tuple(rivals),
    )


def _held_out(family: Family, data: Data, noise: Noise, progress: Any) -> Array:
    order = np.random.default_rng([0, 1]).permutation(len(data.action))
    losses = np.empty(len(order))
    for part in np.array_split(order, FOLDS):
        fitted = fit_curve(family, data.rows(np.setdiff1d(order, part)), noise)
        losses[part] = scores(fitted, data.rows(part), noise)
        if progress:
            progress(1)
    return losses


def _compared(family: Family, losses: Array, best: Array) -> dict[str, float]:
    gaps = losses - best
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return {"free": family.size, "loss": float(losses.mean()), "difference": float(gaps.mean()), "error": error}


def _resampled(fit: Fit, data: Data, noise: Noise, *, family: Family, resamples: int, progress: Any) -> list[Any]:
    rng, count = np.random.default_rng([0, 2]), len(data.action)
    curves = []
    for _ in range(resamples):
        drawn = data.rows(rng.integers(0, count, count))
        curves.append(fit_curve(family, drawn, noise, start=fit.free).curve)
        if progress:
            progress(1)
    return curves


def departures(fit: Fit, effects: Sequence[Callable[[Any], Any]], actions: Array) -> list[float]:
    """The relative distance of each curve, given as a function, from the fitted one at the doses of the log."""
    doses = np.linspace(float(actions.min()), float(actions.max()), 50)
    weights = np.asarray(fit.curve.effect(actions))
    worst = []
    for effect in effects:
        constant = 1.0 / float(np.mean(np.asarray(effect(actions)) / weights))
        worst.append(float(np.max(np.abs(constant * effect(doses) / fit.curve.effect(doses) - 1.0))))
    return worst


# --- Which curves the data allow if the context guided the doses

EXPONENTS = np.geomspace(0.1, 10.0, 201)
"""The values of s to try. If the data allow the first or the last, they set no bound on that side."""

ALLOWED_BAND, RANGE = 1.645, 1.960
"""z of the 90 % band and of the 95 % range."""


class Allowed(NamedTuple):
    """The exponents s for which g^s agrees with the data: the best, and the ends of the 90 % and of the 95 % range."""

    best: float
    band: tuple[float, float]
    range: tuple[float, float]


def allowed_exponents(curve: DoseCurve, data: Data) -> Allowed:
    """The powers of a curve that the data allow, adjusted for the context.

    >>> rng = np.random.default_rng(0)
    >>> weight = rng.uniform(-0.5, 0.5, 400)
    >>> action = np.clip(0.5 + 0.8 * weight + 0.1 * rng.normal(size=400), 0.05, 1.0)
    >>> cost = action * np.exp(-2.0 * weight) * np.exp(0.2 * rng.normal(size=400))
    >>> found = allowed_exponents(identity(), Data(weight[:, None], action, cost))
    >>> bool(found.range[0] < 1.0 < found.range[1])
    True
    """
    heights = np.log(np.asarray(curve.effect(data.action), dtype=float))
    terms = _terms(data.context, heights)
    sizes = np.abs([_score(s, heights, terms, data.outcome) for s in EXPONENTS])
    best = int(np.argmin(sizes))
    return Allowed(float(EXPONENTS[best]), _around(best, sizes <= ALLOWED_BAND), _around(best, sizes <= RANGE))


def _score(exponent: float, heights: Array, terms: Array, outcome: Array) -> float:
    """Z(s)."""
    intensity = np.exp(exponent * heights)
    turn, _ = np.linalg.qr(intensity[:, None] * terms)
    slope = intensity * heights
    products = (outcome - turn @ (turn.T @ outcome)) * (slope - turn @ (turn.T @ slope))
    size = float(np.sqrt(products @ products))
    free = max(len(outcome) - terms.shape[1], 1) / len(outcome)
    return float(np.sqrt(free) * products.sum() / size) if size > 0.0 else 0.0


def _terms(context: Array, heights: Array) -> Array:
    """A basis of the functions that c may be."""
    terms = context_terms(context)
    rule = terms @ (terms.T @ heights)
    rule = (rule - rule.mean()) / max(float(rule.std()), 1e-300)
    return basis(np.column_stack([terms, rule**2, rule**3]))


def _around(best: int, allowed: Array) -> tuple[float, float]:
    """The ends of the range of allowed exponents around the best one; at least its neighbours."""
    below, above = np.flatnonzero(~allowed[:best]), np.flatnonzero(~allowed[best + 1 :])
    first = min(below[-1] + 1 if below.size else 0, max(best - 1, 0))
    last = max(best + above[0] if above.size else len(allowed) - 1, min(best + 1, len(allowed) - 1))
    return float(EXPONENTS[first]), float(EXPONENTS[last])


def choose_adjusted(data: Data, *, noise: Noise) -> tuple[Chosen, Allowed]:
    """The identity if the data allow it, else the power curve that fits best; and the powers that the data allow."""
    allowed = allowed_exponents(identity(), data)
    straight = allowed.range[0] <= 1.0 <= allowed.range[1]
    curve = identity() if straight else power(float(f"{allowed.best:.4g}"))
    fit = fit_curve(Family(curve.name, 0, lambda _: curve, ((),)), data, noise)
    heights = np.asarray(fit.curve.effect(GRID))
    alone = Chosen(fit=fit, table={}, grid=GRID, low=heights, high=heights, error=0.0, rivals=())
    return widened(alone, data)[0], allowed


def widened(chosen: Chosen, data: Data) -> tuple[Chosen, Allowed]:
    """A curve with the band and the error of its allowed powers; and the powers that the data allow."""
    curve = chosen.fit.curve
    allowed = allowed_exponents(curve, data)
    heights = np.asarray(curve.effect(GRID), dtype=float)
    ends = [lambda action, s=end: np.asarray(curve.effect(action)) ** s for end in allowed.range]
    made = replace(
        chosen,
        low=np.minimum(chosen.low, heights ** allowed.band[1]),
        high=np.maximum(chosen.high, heights ** allowed.band[0]),
        error=max([chosen.error, *departures(chosen.fit, ends, data.action)]),
    )
    return made, allowed


# --- Proposals for S, L and κ, each with its reason. No data can prove such a constant

CONFIDENCE = 0.95


class Proposal(NamedTuple):
    """A constant and its reason."""

    value: float
    reason: str


def propose_noise(name: str, fit: Fit, data: Data, noise: Noise, caution: float) -> Proposal:
    """κ: the larger of an upper bound on the residuals' deviation (χ², 95 %) and the largest residual divided by
    √(2 ln 2n), the typical size of the largest of n Gaussian residuals; times `caution`.
    """
    from scipy.special import chdtri

    left = residuals(fit, data, noise)
    free = max(len(left) - len(fit.coef) - len(fit.free), 1)
    deviation = math.sqrt(float(left @ left) / free)
    upper = deviation * math.sqrt(free / float(chdtri(free, CONFIDENCE)))
    tail = float(np.max(np.abs(left))) / math.sqrt(2.0 * math.log(2.0 * len(left)))
    value = round_up(caution * max(upper, tail))
    cause = "their largest one" if tail > upper else "their spread"
    kind = "per unit of intensity " if noise == "proportional" else ""
    return Proposal(
        value,
        f"{name} residuals {kind}have deviation {deviation:.3g}, at most {upper:.3g} (95 %); the largest is "
        f"{float(np.max(np.abs(left))):.3g}, as of noise with constant {tail:.3g}. Set by {cause}, times {caution:g}. "
        "No data bound it from above: if you know the range or the law of the noise, use that.",
    )


def propose_coefficient_bound(fits: dict[str, tuple[Fit, Data]], noise: Noise, caution: float) -> Proposal:
    """S: the largest norm in the 95 % ellipsoids of the coefficients, over the outcomes; times `caution`."""
    from scipy.special import chdtri

    sizes = {}
    for name, (fit, data) in fits.items():
        spread = float(np.linalg.eigvalsh(covariance(fit, data, noise))[-1])
        reach = math.sqrt(max(spread, 0.0) * float(chdtri(len(fit.coef), 1.0 - CONFIDENCE)))
        sizes[name] = (float(np.linalg.norm(fit.coef)), float(np.linalg.norm(fit.coef)) + reach)
    words = "; ".join(f"{name}: {norm:.3g}, at most {top:.3g} (95 %)" for name, (norm, top) in sizes.items())
    value = round_up(caution * max(top for _, top in sizes.values()))
    return Proposal(value, f"Norms of the fitted coefficients: {words}. The largest, times {caution:g}.")


def propose_context_bound(context: Array, caution: float) -> Proposal:
    """L: the norm of the longest context, with a margin; a longer context will be refused, never clipped."""
    longest = float(np.linalg.norm(context, axis=1).max())
    constant = bool(np.all(context == context[0]))
    margin = 1.0 if constant else caution
    words = f"The longest of {len(context)} contexts has norm {longest:.3g}" + (
        "" if constant else f", times {caution:g}"
    )
    return Proposal(round_up(margin * longest), f"{words}. A context beyond it will be refused.")


def round_up(value: float, digits: int = 2) -> float:
    """Round up to `digits` significant digits.

    >>> round_up(0.1234), round_up(30.0), round_up(1.001)
    (0.13, 30.0, 1.1)
    """
    size = 10.0 ** (math.floor(math.log10(max(value, 1e-12))) - digits + 1)
    return float(f"{math.ceil(value / size - 1e-9) * size:.{digits}g}")
