"""One user's situation: what is vouched for, the plan, and the numbers of the simulated world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from safedial.core.brackets import Growth
from safedial.core.costs import read_costs
from safedial.core.dose import Dose
from safedial.core.promise import PROMISES
from safedial.core.spec import CONSTANTS
from safedial.core.tolerated import Cost
from safedial.errors import is_number, is_whole, require
from safedial.planning.bracket_plan import TOLERANCE

ODDS = "odds"
"""The odds of an event at the full dial in context 0, for costs of 0 or 1."""

MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Checked; `choose` documents the fields.

    Attributes:
        answers: to every question. vouched: the assumptions that they vouch for, and that no pilot contradicts.
        against: by assumption, what a pilot found against it. supported: assumptions taken from a pilot's silence.
        constants: stated where they are vouched for, else assumed. proposed: those that come from a pilot.
    """

    answers: Mapping[str, str]
    vouched: tuple[str, ...]
    threshold: float | None
    risk: float
    rounds: int
    dim: int
    start: float | None
    growth: Growth | None
    costs: Mapping[str, Cost] | None
    base: str
    constants: Mapping[str, float]
    dose: Dose
    against: Mapping[str, str] = field(default_factory=dict)
    supported: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", dict(self.constants))
        self._check_plan()
        self._check_costs()
        known = (*CONSTANTS, ODDS, *TOLERANCE)
        for name, value in self.constants.items():
            require(name in known, "constants", name, "is not one of " + ", ".join(known))
            require(is_number(value) and value > 0.0, name, value, "must be a number > 0")
        if "constants" in self.vouched and not self.bracketed:
            lacking = [name for name in self.needed if name not in self.constants]
            way_out = "state them, or answer that you cannot (noise='unknown' or 'gaussian')"
            require(not lacking, "constants", lacking, "are missing: you say that you can state them", way_out)

    def _check_plan(self) -> None:
        require(is_number(self.risk) and 0.0 < self.risk < 0.5, "risk", self.risk, "must lie between 0 and 0.5")
        for name in ("rounds", "dim"):
            value = getattr(self, name)
            require(is_whole(value), name, value, "must be a whole number >= 1")
        require(
            self.rounds <= MOST_ROUNDS, "rounds", self.rounds, f"must be at most {MOST_ROUNDS:,}: all are simulated"
        )
        start = self.start
        rule = "must be a number in (0, 1]: a share of the dial or, with a bracket, of the base"
        require(start is None or (is_number(start) and 0.0 < start <= 1.0), "start", start, rule)

    def _check_costs(self) -> None:
        limited = self.threshold is not None
        if self.several:
            require(not limited, "threshold", self.threshold, "does not go with several costs: each has its own")
            other = "certified" if "constants" in self.vouched else "student"
            costs = read_costs(self.costs, PROMISES["bracket" if self.bracketed else other])
            object.__setattr__(self, "costs", costs)
            return
        require(self.costs is None, "costs", self.costs, "are for cost='several'")
        positive = is_number(self.threshold) and self.threshold > 0.0  # pyright: ignore[reportOptionalOperand] -- a number
        signed = self.bracketed and is_number(self.threshold)
        require(signed or positive, "threshold", self.threshold, "must be a number > 0", "the largest cost you accept")
        event = not self.zero_one or self.threshold < 1.0  # pyright: ignore[reportOptionalOperand] -- a number
        require(event, "threshold", self.threshold, "must be below 1 where costs are 0 or 1", "0.5 means: no event")
        stated = not self.bracketed or isinstance(self.growth, Growth)
        way_out = "for example relative from 0.7 to 1.4 above a floor of 2 or, for costs of 0 or 1, spread"
        require(stated, "growth", self.growth, "is missing: you say that you know a bracket", way_out)
        fits = not self.bracketed or self.zero_one == (self.growth is not None and self.growth.name == "spread")
        require(fits, "growth", self.growth, "spread is for costs of 0 or 1, and only spread is", way_out)

    @property
    def several(self) -> bool:
        return self.answers["cost"] == "several"

    @property
    def zero_one(self) -> bool:
        return self.answers["cost"] == "zero-one"

    @property
    def bracketed(self) -> bool:
        """Whether a bracket is known in place of an exact dose curve."""
        return "growth" in self.vouched or "growth" in self.against

    @property
    def needed(self) -> tuple[str, ...]:
        """The constants of the simulated world."""
        if self.bracketed:
            return tuple(TOLERANCE)
        kept = CONSTANTS if not self.several else tuple(name for name in CONSTANTS if name != "cost_noise")
        return (*kept, ODDS) if self.zero_one else kept

    @property
    def assumed(self) -> dict[str, float]:
        """What the forecast needs and nobody vouches for: as given, or usual numbers in proportion to the threshold."""
        if "constants" in self.vouched and not self.bracketed:
            return {}
        size = 1.0 if self.threshold is None or self.zero_one else self.threshold
        usual = {"reward_noise": 0.6 * size, "cost_noise": 0.6 * size, "coefficient_bound": 2.0 * size}
        usual |= {"context_bound": 1.0, ODDS: 0.25, **TOLERANCE}
        return {name: self.constants.get(name, usual[name]) for name in self.needed}

    @property
    def facts(self) -> frozenset[str]:
        """What policies may rest on."""
        return frozenset(self.vouched) | ({"start"} if self.start is not None else set())
