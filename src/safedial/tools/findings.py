"""The result of a check: what it tested and found, what that means for the guarantee, and how strong the evidence is.

The checks use normalised outcomes, and residuals taken before each round's update:

    y_t = (C_t − b₀)/g_c(α_t)   or   R_t/g_r(α_t)        e_t = y_t − ⟨x_t, μ̂_{t−1}⟩

μ̂_{t−1} is the learner's estimate from the rounds before t, so e_t = ξ_t + ⟨x_t, μ* − μ̂_{t−1}⟩: noise, and an error
that was fixed before the noise was drawn. Residuals of a fit that includes the round are smaller than the noise and
would hide what the checks look for. Rounds at intensity 0 carry no information and are left out. With sensor noise
every row is multiplied by √ω (bounds/estimate.py), which makes its noise κ-sub-Gaussian again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from safedial.tools.evidence import marks

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
