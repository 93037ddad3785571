"""The guarantees: their assumptions, what their risk is counted over, and their wording.

Code that depends on a guarantee asks for one of these properties, never for its name. So a new guarantee is one more
entry of `GUARANTEES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

LIMITED = "P({event}) <= {risk:g} in this round"


class Guarantee(NamedTuple):
    """One guarantee: a policy's (`Policy.guarantee`), a spec's (`SafetySpec.guarantee`) or a decision's.

    Attributes:
        standing: 1 if the realized cost is bounded by a proof, 0 if that rests on the user's judgement alone, NaN if
            nothing is said about it.
        from_constants: the proof uses the constants that a spec states.
        exchangeable: the proof assumes exchangeable rounds and needs no constants.
        bracketed: it assumes a growth bracket too, in place of an exact dose curve.
        gaussian: it assumes Gaussian noise, whose size it learns, and needs no constants.
        each_round: the risk is that of one round, not of all rounds together; `span` says so in words, and `rate`
            is the column of a plan that it limits; `allowed` how many violations that allows, in words.
        empty: nothing is proved, not even about the mean.
        given: the guarantee of a decision whose cost has a bound.
        start: the guarantee of a decision whose cost has no bound yet, if no start dose was declared.
        under: the guarantees of the specs that a policy with this one may advise under, and `simulated_under` those
            that it may be simulated under, where another policy gives theirs.
        limit: which bound sets a dose, a key of `LIMITS`.
        statement: the guarantee in one sentence.
        needs: what its proof needs of a world (`simulation.proof`); each set suffices.
        marginal: the risk is that of a round, over the past rounds too.
        constants: the fields of a spec that the proof uses, beside threshold and violation risk.
        risks: the fields of a spec whose sum is the risk, where they are stated.
        takes: what else a spec with this guarantee may state: "margins" (what is known of the noise), "noise_scale",
            "sensors" (their noise), "any threshold" (of any sign), "costs" (several).
        cost_states: what each of several costs must state; with "" its share of the risk is enough.
        splits: each of several costs has a guarantee of its own, with a share of the risk.
        default_policy: the policy of a spec that names none, and `default_options` what it cannot do without.
        because: why that policy, in words; only a guarantee that a spec may state has one.
    """

    standing: float = math.nan
    from_constants: bool = False
    exchangeable: bool = False
    bracketed: bool = False
    gaussian: bool = False
    each_round: bool = True
    empty: bool = False
    given: str = "none"
    start: str = "none"
    under: tuple[str, ...] = ("certified", "joint")
    simulated_under: tuple[str, ...] = ("certified", "joint")
    limit: str = ""
    statement: str = ""
    span: str = "a round"
    rate: str = "violation_rate"
    allowed: str = "{mean} on average"
    needs: tuple[frozenset[str], ...] = ()
    marginal: bool = False
    constants: tuple[str, ...] = ()
    risks: tuple[str, ...] = ("violation_risk",)
    takes: frozenset[str] = frozenset()
    cost_states: str = ""
    splits: bool = True
    default_policy: str = "hp_probe"
    default_options: Mapping[str, str] = MappingProxyType({})
    because: str = ""

    @property
    def proved(self) -> bool:
        return self.standing == 1.0

    @property
    def claimed(self) -> bool:
        """Whether it says something about the realized cost, which an outcome can contradict."""
        return self.standing >= 0.0

    @property
    def word(self) -> str:
        """What a setting within its bound is called."""
        return "safe" if self.standing >= 0.0 else "allowed"

    def allows(self, risk: float, rounds: int) -> str:
        """How many violations it allows in so many rounds, in words.

        >>> GUARANTEES["certified"].allows(0.05, 40), GUARANTEES["joint"].allows(0.05, 40)
        ('2 on average', 'one or more in 0.05 of the studies')
        """
        from safedial.model.dial import significant  # it imports NumPy, which listing the guarantees does not need

        return self.allowed.format(mean=significant(risk * rounds, 3), risk=risk)

    @property
    def rests_on(self) -> frozenset[str]:
        """All that its proof needs of a world."""
        return frozenset[str]().union(*self.needs)

    @property
    def in_brief(self) -> str:
        """What kind of guarantee it is and what it takes as true, in one sentence."""
        if not self.because:
            return "Nothing is proved about the realized cost."
        return f"The guarantee on the realized cost holds if what is stated is true: {self.because}."


CONSTANTS = ("reward_noise", "cost_noise", "coefficient_bound", "context_bound")
"""The constants of the certified guarantees: bounds on the noise, and on the norms of coefficients and contexts."""

CERTIFIED = Guarantee(
    standing=1.0,
    from_constants=True,
    needs=(frozenset({"exact dose curve", "stated constants", "stated noise", "linear mean"}),),
    constants=CONSTANTS,
    risks=("violation_risk", "estimation_risk", "margin_risk"),
    takes=frozenset({"margins", "noise_scale", "costs", "sensors"}),
    cost_states="noise",
    given="certified",
    start="certified",
    limit="cost_bound",
    statement=LIMITED,
    because="upper bounds on the noise and on the norms of coefficients and contexts are stated",
)

MARGINAL = frozenset({"exact dose curve", "exchangeable rounds", "costs of any size", "safe start"})
"""What a conformal guarantee needs."""

GUARANTEES = {
    "certified": CERTIFIED,
    "joint": CERTIFIED._replace(
        each_round=False,
        span="all rounds together",
        rate="any_violation",
        allowed="one or more in {risk:.3g} of the studies",
        statement="P({event} in any round, ever) <= {risk:g}",
    ),
    "conformal": Guarantee(
        standing=1.0,
        exchangeable=True,
        needs=(MARGINAL,),
        marginal=True,
        given="conformal",
        under=("conformal",),
        simulated_under=("certified", "conformal", "bracket"),
        start="certified",
        limit="conformal_bound",
        statement=f"{LIMITED}, for exchangeable rounds",
        default_policy="hp_conformal",
        because="rounds are stated to be exchangeable, and nothing about noise or norms needs to be",
    ),
    "bracket": Guarantee(
        standing=1.0,
        exchangeable=True,
        bracketed=True,
        needs=(frozenset({"kept bracket"}),),
        marginal=True,
        takes=frozenset({"any threshold", "costs"}),
        cost_states="growth",
        splits=False,
        given="bracket",
        under=("bracket",),
        simulated_under=("certified", "conformal", "bracket"),
        start="declared",
        limit="count_rule",
        statement=f"{LIMITED}, for exchangeable rounds in the bracket",
        default_policy="hp_shield",
        default_options=MappingProxyType({"base": "proposal"}),
        because="a growth bracket is stated, and no exact dose curve",
    ),
    "student": Guarantee(
        standing=1.0,
        gaussian=True,
        needs=(frozenset({"exact dose curve", "gaussian noise", "linear mean", "costs of any size", "safe start"}),),
        marginal=True,
        risks=("violation_risk", "estimation_risk"),
        takes=frozenset({"costs"}),
        given="student",
        under=("student",),
        simulated_under=("certified", "student"),
        start="certified",
        limit="student_bound",
        statement=f"{LIMITED}, for Gaussian noise of any size",
        default_policy="hp_student",
        because="the noise is stated to be Gaussian, of a size that is learned",
    ),
    "expected": Guarantee(
        limit="mean_bound", statement="none on the realized cost: only its mean is kept at or below {threshold:g}"
    ),
    "heuristic": Guarantee(
        empty=True,
        limit="unproved_bound",
        statement="none: the policy or its function class is heuristic, and nothing is proved",
    ),
    "bayesian": Guarantee(limit="posterior_bound", statement="none for one truth: P({event}) is averaged over a prior"),
    "declared": Guarantee(
        standing=0.0,
        statement="none is proved yet: P({event}) rests on your judgement alone (you declared the start dose safe)",
    ),
    "none": Guarantee(),
    "imported": Guarantee(),
}
"""By name. Only decisions have "declared" (a start dose that you declared safe), "none" and "imported"."""

PROVED = tuple(name for name, guarantee in GUARANTEES.items() if guarantee.because)
"""What a spec may guarantee."""

OF_POLICIES = tuple(name for name, guarantee in GUARANTEES.items() if guarantee.limit)
"""What a policy may claim: what has a bound that sets a dose."""
