"""What a replay returns, and the arrays it is written into while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.dose import Dose
from safedial.core.estimate import Estimate
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.notebook import card, data_frame
from safedial.policies import Policy

if TYPE_CHECKING:
    from pandas import DataFrame


class Trace(NamedTuple):
    """What was decided, (rows, rounds): a row for each spec."""

    intensity: NDArray[np.float64]
    reward_index: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    width: NDArray[np.float64]
    certified: NDArray[np.bool_]


def empty_trace(rows: int, rounds: int) -> Trace:
    intensity, reward_index, cost_upper, width = np.empty((4, rows, rounds))
    return Trace(intensity, reward_index, cost_upper, width, np.empty((rows, rounds), dtype=bool))


@dataclass(frozen=True)
class Replay:
    """A finished replay. Arrays are (rows, rounds), a row for each spec of a swept one.

    Attributes:
        intensity: what was played, as the safe set measures it; `action` is the dial.
        reward_index: what the policy compared with 0; `cost_upper`, `width`: the cost's bound and the width behind it.
        certified: False if not even 0 was safe.
        estimates: the final estimate of each row; shared by all rows if doses cannot change what is learned. With
            engine "jax" its arrays are JAX's and stay on the device; `np.asarray` copies them to the host.
        seconds: from the call to the answer, compilation included.
    """

    policy: Policy
    spec: SafetySpec
    dose: Dose
    intensity: NDArray[np.float64]
    reward_index: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    width: NDArray[np.float64]
    certified: NDArray[np.bool_]
    estimates: tuple[Estimate, ...]
    rewards: NDArray[np.float64]
    costs: NDArray[np.float64]
    reward_sensor: Any
    cost_sensor: Any
    baseline_cost: Any
    seconds: float
    engine: str
    block: int
    dtype: str
    device: str
    kernel: str

    @property
    def rounds(self) -> int:
        return self.intensity.shape[1]

    @property
    def estimate(self) -> Estimate:
        """The final estimate of the first row."""
        return self.estimates[0]

    @property
    def action(self) -> NDArray[np.float64]:
        """The dial in [0, 1], rounded down."""
        return self.intensity if self.dose.is_identity else self.dose.cost.action(self.intensity)

    @property
    def realized_cost(self) -> NDArray[np.float64]:
        """b₀ + g_c·C/g + ε: what a sensor would have shown; without ε if the threshold limits the true cost."""
        sensed = self.spec.threshold_on == "measured" and self.cost_sensor is not None
        played = self.intensity if self.dose.is_identity else self.dose.cost.effect(self.action)
        return self.baseline_cost + played * self.costs + (self.cost_sensor if sensed else 0.0)

    @property
    def violations(self) -> NDArray[np.int64]:
        """Rounds whose realized cost is above the threshold, by row; an unknown cost does not count."""
        return (self.realized_cost > np.reshape(self.spec.threshold, (-1, 1))).sum(axis=1)

    @property
    def reward(self) -> NDArray[np.float64]:
        """The sum of g_r·R/g over the rounds whose reward is known, by row."""
        played = self.intensity if self.dose.is_identity else self.dose.reward.effect(self.action)
        return np.nansum(played * self.rewards, axis=1)

    def to_frame(self) -> DataFrame:
        """One row for each (spec row, round), as a pandas table."""
        rows, rounds = self.intensity.shape
        numbers = {"spec": np.arange(rows)[:, None], "round": np.arange(1, rounds + 1)}
        played = {"action": self.action, "intensity": self.intensity, "realized_cost": self.realized_cost}
        return data_frame(
            {name: np.broadcast_to(each, (rows, rounds)).ravel() for name, each in (numbers | played).items()}
        )

    def _repr_html_(self) -> str:
        facts = {"engine": self.engine, "rounds": self.rounds, "violations": self.violations.tolist()}
        note = f"Decisions on logged contexts and outcomes. {PROMISES[self.policy.promise].in_brief}"
        return card(f"Replay of {self.policy.name}", [facts | {"reward": self.reward.tolist()}], [note])

    def __repr__(self) -> str:
        rows, rounds = self.intensity.shape
        return (
            f"Replay(policy={self.policy.name}, engine={self.engine}, dim={len(self.estimate.reward_coef)}, "
            f"specs={rows}, rounds={rounds}, violation_rate={self.violations.mean() / rounds:.4g})"
        )
