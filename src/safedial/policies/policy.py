"""What a policy is: one frozen dataclass, whose state is a record of arrays. This protocol is all that simulations,
agents, studies, certificates and tools know of one.

Its fields are its options: of Python, of a command, of a request, and of the written form. `on(task)` fixes the rest,
and cached properties hold what follows from both. What a policy learns is a *state* (`policies.table`), whose arrays
begin with the axes of its lanes: () in an agent or a study, which has one, and (specs, seeds) in a simulation.

    begin ─► bound ─► choose ─► open          a decision
                                 └─► tell     its outcome: at once, late, or never

Only `begin`, `open`, `tell` and `restart` change a state, in place, and they depend on nothing but their arguments. So
a log of these calls is the state, bit for bit, and a preview is `begin` and `bound` on a copy.

A policy of one's own is such a dataclass with `init`, `bound` and `tell`; everything else has a default:

    @dataclass(frozen=True, kw_only=True)
    class Mean(Policy):
        ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from safedial.bounds.rounding import rounded_spec
from safedial.errors import is_number, is_whole, refusal, require
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array, namespace, where
from safedial.model.spec import SafetySpec
from safedial.policies.supports import ELSEWHERE, check_supported

OPEN, KNOWN, LEFT_OUT, LOST, THROTTLED = range(5)
"""What became of a round, in each lane.

| fate | the outcome | every policy |
|---|---|---|
| OPEN | may still come, or is not told in this lane | takes the round for the worst until then |
| KNOWN | is told | learns from it |
| LEFT_OUT | will not come, for a reason vouched for as unrelated to it | goes on as if there was no round |
| LOST | will not come, and the reason may be related to it | takes the round for the worst, for good |
| THROTTLED | belongs to a setting that was lowered because of it | LOST, but a violation is evidence |
"""


ALARM_AT = 100.0
"""The evidence at which a policy's own evidence stops an agent, if it has one cost."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that is fixed but the policy. `spec` may hold grids in a simulation: a column for each row of lanes.

    `live`: in an agent or a study, where people act on the decisions; options that are left to a rule may differ there.
    `start_action`: the setting that the user declares safe for every context, in the dial's units.
    """

    dim: int
    spec: SafetySpec
    dose: Dose
    dial: Dial = field(default_factory=Dial)
    features: Features | None = None
    start_action: float | None = None
    live: bool = False
    seeds: tuple[int, ...] = (0,)
    """The seeds of a simulation's lanes, for a policy that draws random numbers of its own."""
    alarm_at: float = ALARM_AT
    """The evidence that stops an agent. Of k costs, each of which has evidence of its own, k times as much."""
    epoch: int = 1
    """How many times learning has begun: 1, and once more for each time that the earlier rounds were forgotten."""
    exact: bool = True
    """Whether rounds were forgotten, if at all, only for reasons that are unrelated to outcomes."""
    world: frozenset[str] = frozenset()
    """What the world of a simulation states (`policies.supports`)."""


class StartSetting(NamedTuple):
    """What is given while nothing is known, in the dial's units; None for a policy without such a setting.

    `fallback` is what is advised where nothing is guaranteed (None: the dial's low end), and `least` the lowest setting
    that is given for a positive intensity (None: it may round down to nothing).
    """

    action: float | None = None
    fallback: float | None = None
    least: float | None = None


class Asked(NamedTuple):
    """A question, for each lane: contexts (..., d) and their norms, the round's number from 1 (0: it lies before the
    first decision), the known cost of doing nothing, a coin uniform on [0, 1), and the setting that somebody proposes.
    `truth` is the true means, for a policy that is given them.
    """

    context: Any
    norm: Any
    number: Any
    baseline: Any = 0.0
    coin: Any = 0.5
    proposal: Any = None
    truth: Any = None


class Bound(NamedTuple):
    """What a policy knows before a decision, for each lane, in its own unit.

    Attributes:
        index: benefit is expected where it is ≥ 0.
        largest: [0, largest] keeps the guarantee.
        numbers: plain values by name: what the log keeps of the decision, and the certificate is written from.
        ready: False where nothing is known yet, and `largest` is a start dose.
        certified: False where not even 0 keeps the guarantee.
        refuted: whether the data contradict the spec.
        memo: for the policy's own `choose` and `open`; never stored.
        limit: a key of `LIMITS`, where something of the policy's own set `largest` ("reach", "start_dose", …).
        teaches: whether the policy will learn from the round, whatever its outcome.
    """

    index: Any
    largest: Any
    numbers: dict[str, Any]
    ready: Any = True
    certified: Any = True
    refuted: Any = False
    memo: Any = None
    limit: str = ""
    teaches: Any = True


class Told(NamedTuple):
    """What became of a round, for each lane. What a lane is told whose fate is not KNOWN or THROTTLED is ignored.

    Attributes:
        fate: OPEN, KNOWN, LEFT_OUT, LOST or THROTTLED.
        reward: R/g_r of the applied action; 0 where `weight` is.
        cost: (C − b₀)/g_c of the applied action; 0 where `weight` is.
        weight: ω of the sample, 0 where it teaches nothing (nothing was given).
        measured: C, as it was measured; a mapping where the spec states several costs, NaN where one is not known.
            (None where a simulation tells it to a policy of this package and it follows from `cost`.)
        baseline: b₀.
        action: the applied setting, in the dial's units. (The advised one was given to `open`.)
        intensity: g_c of the applied setting.
        context: the round's context, as in the question.
        norm: its norm.
        parts: the same for each of several costs, by name, under a guarantee that is split among them.
        reward_intensity: g_r of the applied setting.
    """

    fate: Any
    reward: Any
    cost: Any
    weight: Any
    measured: Any
    baseline: Any
    action: Any
    intensity: Any
    context: Any
    norm: Any = None
    parts: dict[str, Told] | None = None
    reward_intensity: Any = None


class Evidence(NamedTuple):
    """Evidence against the assumptions: 1 at the start; `crossed` once it ever reached `limit`. `bet` is the latest of
    the p-values that it is made of, with the place of its round, where one lane bets on them.
    """

    value: Any
    crossed: Any
    limit: float = ALARM_AT
    bet: tuple[int, float] | None = None


class Terms(NamedTuple):
    """The words of a certificate: the guarantee, what it rests on, the arithmetic from the numbers to the setting, and
    facts, which are plain values; and what to add to the reason of a fallback.
    """

    statement: str
    assumptions: list[str]
    arithmetic: Sequence[str] = ()
    facts: Mapping[str, Any] = MappingProxyType({})
    note: str = ""


class Decided(NamedTuple):
    """A decision as plain values: what `terms` is given, live and from a log alike.

    `chosen` is the intensity (or setting) that the policy chose, `action` what the dial is set to, `limit` the key of
    `LIMITS` that set it, `reason` why it is a fallback ("" if not), and `guarantee` what is guaranteed.
    """

    number: int
    baseline: float
    index: Any
    largest: float
    chosen: float
    action: float
    ready: bool
    guarantee: str
    limit: str
    reason: str
    numbers: dict[str, Any]


BY_RULE = "auto"
"""The value of an option that `on` sets by a rule from the task."""


def option(
    default: Any = MISSING,
    check: Callable[[Any], bool] | None = None,
    rule: str = "",
    way_out: str = "",
    *,
    by_rule: bool = False,
    written: str = "",
) -> Any:
    """A field that is an option, and how it is checked: `check(value)`, else the error says the rule and the way out.
    With `by_rule` it may be "auto" too, and then `on` must set it. Without a default it must be stated. `written` is
    its name for people, where a field cannot have it.
    """
    told = {"check": check, "rule": rule, "way_out": way_out, "by_rule": by_rule, "written": written}
    return field(default=default, metadata=told)


def flag(default: bool) -> Any:
    """An option that is True or False."""
    return option(default, lambda value: value is True or value is False, "must be True or False")


def one_of(default: Any, names: Sequence[str], **how: Any) -> Any:
    """An option that is one of these names."""
    words = "must be one of " + ", ".join(names) if len(names) > 2 else "must be " + " or ".join(map(repr, names))
    return option(default, lambda value: isinstance(value, str) and value in names, words, **how)


def whole(default: int, least: int = 0, way_out: str = "") -> Any:
    """An option that is a whole number."""
    return option(default, lambda value: is_whole(value, least), f"must be a whole number >= {least}", way_out)


def part(default: Any, way_out: str = "", rule: str = "must be a number in (0, 1]", **how: Any) -> Any:
    """An option that is a number in (0, 1], or None."""
    check = lambda value: value is None or (is_number(value) and 0.0 < value <= 1.0)  # noqa: E731 -- as in its callers
    return option(default, check, rule, way_out, **how)


def factor(default: Any, way_out: str, **how: Any) -> Any:
    """An option that is a number above 1, or None."""
    check = lambda value: value is None or (is_number(value) and value > 1.0)  # noqa: E731 -- as in its callers
    return option(default, check, "must be a number > 1 or None", way_out, **how)


def is_place(value: Any) -> bool:
    """Whether this names a column of a context: its number, or a feature's name."""
    return is_whole(value, 0) or (isinstance(value, str) and value != "")


def grouping() -> Any:
    """An option that says which group a context belongs to, or None."""
    check = lambda group: group is None or is_place(group) or callable(group)  # noqa: E731 -- as in its callers
    return option(None, check, "must be a feature's name, a column's number or a function of the context")


def check_column(name: str, value: Any, dim: int) -> None:
    """Refuse the number of a column that contexts do not have."""
    inside = not isinstance(value, int) or value < dim
    require(inside, name, value, f"must be a column of a context of dimension {dim}", "columns count from 0")


def is_proper(policy: Policy) -> None:
    """Refuse an option that breaks its rule. NumPy's numbers become plain ones, as options are written."""
    for each in (each for each in fields(policy) if each.init):
        check, value = each.metadata.get("check"), getattr(policy, each.name)
        if isinstance(value, np.generic):
            object.__setattr__(policy, each.name, value := value.item())
        left = each.metadata.get("by_rule") and isinstance(value, str) and value == BY_RULE
        if check is not None and not left:
            require(check(value), written(each), value, each.metadata["rule"], each.metadata["way_out"])


def written(option: Any) -> str:
    """The name of an option's field for people."""
    return option.metadata.get("written") or option.name


State = Any
"""What a policy has learned, in a form of its own (`policies.table`); its arrays begin with the axes of its lanes."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The protocol, with the defaults of a policy that needs nothing special.

    Class data, which drivers ask in place of the policy's name:
        name: as in `FACTORIES`; label: its name in the paper or in this project's documents.
        guarantee: a key of `GUARANTEES`.
        unit: whether bounds and choices are intensities in [0, 1], or settings of the dial.
        in_order: outcomes are learned in decision order, and a lost one ends learning.
        counts: counted violations are evidence, because the guarantee holds in each round given the past.
        reads_reward: it chooses by rewards.
        learns: outcomes matter to it.
        zero_tells: the outcome of a round that was given nothing tells something.
        knows_truth: it is given the true means (a clairvoyant, for comparison only).
        randomised: the choice depends on the coin.
        zero_one: every cost must be 0 or 1.
        most_rounds: how many rounds it can hold.
        takes_proposal: a question may come with a proposed setting.
        takes_history: it learns from rounds that it did not decide.
        direction: "below" where a single cost must not fall below the threshold.
        counts_starts: how many rounds got the start dose is shown, unless counted violations are evidence.
        allows_past_zeros: rounds from before the first decision may have been given nothing, for any reason.
        history_counts: its guarantee also depends on rounds from before the first decision, where it learns from them.
        exact_dose: what a cost would have been at a lower setting follows from the dose curve.
        names_rounds: its `numbers` list decided rounds under "exceeding"; a study's log lists their ids there.
        uncompiled: why engine 'jax' cannot play it; "" if it can.
        watches_lanes: whether a simulation keeps its evidence.
        stop_rules: the rules that its own evidence may stop an agent by, keys of `LIMITS`.
    """

    name: ClassVar[str] = ""
    label: ClassVar[str] = ""
    guarantee: ClassVar[str] = "heuristic"
    unit: ClassVar[str] = "intensity"
    in_order: ClassVar[bool] = False
    counts: ClassVar[bool] = True
    reads_reward: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    zero_tells: ClassVar[bool] = False
    knows_truth: ClassVar[bool] = False
    randomised: ClassVar[bool] = False
    zero_one: ClassVar[bool] = False
    takes_proposal: ClassVar[bool] = False
    takes_history: ClassVar[bool] = True
    counts_starts: ClassVar[bool] = True
    allows_past_zeros: ClassVar[bool] = True
    history_counts: ClassVar[bool] = True
    direction: ClassVar[str] = "above"
    exact_dose: ClassVar[bool] = True
    names_rounds: ClassVar[bool] = False
    most_rounds: ClassVar[float] = math.inf
    uncompiled: ClassVar[str] = "keeps a state that changes in place, which JAX cannot compile"
    watches_lanes: ClassVar[bool] = True
    stop_rules: ClassVar[tuple[str, ...]] = ("drift",)
    plain_numbers: ClassVar[bool] = False
    """Whether the numbers of its bounds are plain already where people act on them, finite or None: copying them would
    take a twentieth of a linear decision."""
    recorded: ClassVar[Any] = None
    """How a decision of another processor is checked, where it is known how far rounding may move its numbers
    (`policies.linear.Recorded`); None: it must be the same up to a fixed tolerance."""
    excludes: ClassVar[frozenset[str]] = ELSEWHERE
    """Facts about spec, dial and world (`policies.supports`) with which it has no proof, or cannot play."""

    task: Task = field(init=False, repr=False, compare=False)
    """What `on` has bound it to; it is no option."""

    def __init_subclass__(cls, **given: Any) -> None:
        """A policy without a label is shown by its name."""
        super().__init_subclass__(**given)
        cls.label = cls.__dict__.get("label", cls.name)

    def __post_init__(self) -> None:
        """Check each option by its own rule."""
        is_proper(self)

    @property
    def spec(self) -> SafetySpec:
        """The spec as the user states it."""
        return self.task.spec

    @cached_property
    def safe_spec(self) -> SafetySpec:
        """The spec that decisions go by: in an agent or a study with each number rounded to the safe side."""
        return rounded_spec(self.task.spec) if self.task.live else self.task.spec

    @cached_property
    def start(self) -> StartSetting:
        """What is given while nothing is known."""
        return StartSetting()

    @property
    def needs(self) -> tuple[frozenset[str], ...]:
        """What its proof needs of a world (`simulation.proof`); each set suffices."""
        return GUARANTEES[self.guarantee].needs

    @property
    def marginal(self) -> bool:
        """Whether its risk is that of a round over the past rounds too."""
        return GUARANTEES[self.guarantee].marginal

    @cached_property
    def is_own(self) -> bool:
        """Whether its class is the user's own."""
        return not type(self).__module__.startswith("safedial.policies.")

    def __copy__(self) -> Policy:
        """Itself, because it is immutable; so a state may refer to it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        return self

    @cached_property
    def options(self) -> dict[str, Any]:
        """Its options by name: with `name`, they make it again."""
        return {written(each): getattr(self, each.name) for each in fields(self) if each.init}

    def on(self, task: Task, **options: Any) -> Self:
        """This policy for a task, with these options set. It refuses a task that it does not support."""
        check_supported(self, task, whole=False)
        made = replace(self, **options)
        object.__setattr__(made, "task", task)
        return made

    def fitted(self, spec: SafetySpec, dim: int) -> SafetySpec:
        """The spec in so many dimensions, with what suits this policy where nothing is stated."""
        return spec

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> State:
        """The state before any round; without `watch` no evidence is kept, which simulations seldom need."""
        raise NotImplementedError

    def begin(self, state: State, asked: Asked) -> None:
        """What is due before a decision, by the number of rounds alone: refits, and bets on settled rounds. A question
        that cannot be answered is refused before anything changes.
        """

    def bound(self, state: State, asked: Asked) -> Bound:
        """What may be given. Changes nothing."""
        raise NotImplementedError

    def choose(self, bound: Bound, asked: Asked) -> Array | float:
        """What is given, at most `bound.largest`."""
        return where(bound.index >= 0.0, bound.largest, 0.0 * bound.largest)

    def open(self, state: State, asked: Asked, bound: Bound | None, chosen: Any) -> None:
        """Take in a decided round; its place is how many were opened before. Until it is told it counts for the worst.

        A round from before the first decision has number 0 and no bound, and is told at once.
        """

    def tell(self, state: State, place: int, told: Told) -> None:
        """What became of the round at `place`, in the lanes where its fate is not OPEN."""

    def evidence(self, state: State) -> dict[str, Evidence]:
        """Evidence against the assumptions, by the rule that it stops with; {} where counted violations are all."""
        return {}

    def restart(self, state: State, before: State | None = None) -> None:
        """Begin the evidence anew, after a person has found out what went wrong. Where rounds were forgotten, `before`
        is the state with them: what they say against a declared start is kept.
        """

    def terms(self, decided: Decided) -> Terms:
        """The certificate's words for a decision; by default those of the guarantee that its class claims."""
        from safedial.policies.words import own_terms  # it needs the names of this module

        return own_terms(self, decided)

    def keeps(self, changed: set[str]) -> bool:
        """Whether the state stays valid when these fields of the spec are amended."""
        return not changed


UNITS = ("intensity", "setting")
"""What bounds and choices may be in."""

REQUIRED = ("init", "bound")
"""The methods without a default; a policy that learns needs `tell` too."""


def missing_methods(policy: Policy) -> list[str]:
    """The methods that a user's own class lacks."""
    kind, needed = type(policy), (*REQUIRED, *(("tell",) if policy.learns else ()))
    return [name for name in needed if getattr(kind, name) is getattr(Policy, name)]


# --- What several policies share


def is_probe(probe: Any) -> bool:
    """Whether this is "sqrt" or a share in [0, 1]."""
    return probe == "sqrt" if isinstance(probe, str) else is_share(probe)


def teaching_probe(default: Any, **how: Any) -> Any:
    """An option that is a probe above 0."""
    check = lambda probe: is_probe(probe) and probe != 0.0  # noqa: E731 -- as in `part`
    return option(default, check, "must be 'sqrt' or a number in (0, 1]", "every round must teach", **how)


def is_share(value: Any) -> bool:
    """Whether this is a number in [0, 1]."""
    return is_number(value) and bool(0.0 <= value <= 1.0)


def probe_share(probe: Any, number: Any) -> Any:
    """m_t: 1/√t, or the stated constant."""
    return number**-0.5 if isinstance(probe, str) else float(probe)


LEAST_ROUNDING = 1e-12
"""What rounding, the dose curve's included, may add to such a quotient, relatively."""


def least_quotient(task: Task, told: Told, advised: Any) -> Any:
    """What C/g is at least of a round whose setting was lowered because of its outcome: the advice, an intensity, would
    have cost at least as much as was measured. NaN where the cost shows nothing, or more was applied than advised.
    """
    above = np.asarray(told.measured - told.baseline, dtype=float)
    applied = task.dose.cost.effect(task.dial.action(told.action))
    shown = (above > 0.0) & (advised > 0.0) & (applied <= advised)
    return np.where(shown, above / np.where(shown, advised, 1.0) * (1.0 - LEAST_ROUNDING), math.nan)


def probed(bound: Bound, share: Any, least: Any = None) -> Any:
    """The largest intensity if benefit is expected, else a `share` of it, at least `least`, so that the round teaches.

    A share of 0 is no probe, whatever `least` says.
    """
    low = share * bound.largest
    if least is not None:
        xp = namespace(bound.index, bound.largest)
        low = xp.maximum(low, xp.where(share > 0.0, xp.minimum(least, bound.largest), low))
    return where(bound.index >= 0.0, bound.largest, low)


INTENSITY_ROUNDING = 1e-6
"""How far rounding, also in single precision, may move an intensity out of [0, 1]."""


def check_intensities(policy: str, lowest: Any, highest: Any) -> None:
    """Refuse intensities outside [0, 1], and those that are not numbers, by the lowest and highest that a policy chose.

    >>> check_intensities("mine", 0.2, 1.5)
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: intensity of policy 'mine' = 1.5: must lie in [0, 1]; let `bound` give a `largest` ...
    """
    lowest, highest = float(lowest), float(highest)
    inside = lowest >= -INTENSITY_ROUNDING and highest <= 1.0 + INTENSITY_ROUNDING
    outside = highest if highest > 1.0 else lowest
    way_out = "let `bound` give a `largest` in [0, 1], and let `choose` return intensities from 0 to it"
    require(inside, f"intensity of policy {policy!r}", outside, "must lie in [0, 1]", way_out)


def check_found(policy: Policy, found: Any, chosen: Any = 0.0, *, one_lane: bool = False) -> None:
    """Refuse what `bound` or `choose` gave, if it is not of the right kind. To be called where using it has failed."""
    whose, way_out = f"of policy {policy.name!r}", "let `bound` return Bound(index, largest, numbers)"
    require(isinstance(found, Bound), f"bound {whose}", found, "must be a Bound", way_out)
    mapping = isinstance(found.numbers, dict)
    require(mapping, f"numbers {whose}", found.numbers, "must be a dict of plain values by name", way_out)
    rule = "must be a number" if one_lane else "must be numbers, one for each lane"
    for name, value, method in (
        ("index", found.index, "bound"),
        ("largest", found.largest, "bound"),
        ("choice", chosen, "choose"),
    ):
        kind = getattr(value, "dtype", None) or np.asarray(value).dtype
        proper = kind.kind in "bifu" and not (one_lane and np.ndim(value))
        require(proper, f"{name} {whose}", value, rule, f"look at `{method}`")


def plain(value: Any) -> Any:
    """A value of one lane as a log holds it: plain, and None for a number that is not finite. Others are refused.

    >>> plain(np.float64(2.0)), plain(float("inf")), plain("sign")
    (2.0, None, 'sign')
    """
    kind = type(value)
    if kind is float:  # as most are
        return value if math.isfinite(value) else None
    if kind is int or kind is str or kind is bool:
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, PLAIN):
        rule = "cannot be kept: numbers, text, None, and lists and dicts of these can"
        raise refusal("numbers of a bound", value, rule, "look at `bound`")
    return None if isinstance(value, float) and not math.isfinite(value) else value


PLAIN = (float, int, str, list, tuple, dict, type(None))
