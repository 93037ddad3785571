"""Policies of a user's own over the linear estimate: a package's rule under another name, or with a part exchanged."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from safedial.bounds.safe_set import safe_set
from safedial.policies.baselines import Thompson
from safedial.policies.linear import HPUCB, HPProbe, Linear, bound_numbers
from safedial.policies.policy import Bound, Policy


@dataclass(frozen=True, kw_only=True)
class Mine(HPUCB):
    """HP-UCB under a name of the user's own."""

    name = "mine"
    label = "Mine"


@dataclass(frozen=True, kw_only=True)
class MyProbe(HPProbe):
    """HP-Probe under a name of the user's own."""

    name = "my_probe"


@dataclass(frozen=True, kw_only=True)
class Impostor(HPUCB):
    """Half of HP-UCB's dose, under HP-UCB's name, which is refused."""

    def choose(self, bound, asked):
        return 0.5 * super().choose(bound, asked)


@dataclass(frozen=True, kw_only=True)
class Halved(Mine):
    """Half of its dose, under the same name."""

    def choose(self, bound, asked):
        return 0.5 * super().choose(bound, asked)


@dataclass(frozen=True, kw_only=True)
class MyThompson(Thompson):
    """A policy of the user's own that needs a coin."""

    name = "my_thompson"


@dataclass(frozen=True, kw_only=True)
class ByNorms(Linear):
    """A rule of the user's own, without a confidence radius: what the norms allow."""

    name = "by_norms"

    def rule(self, seen, asked):
        upper = self.safe_spec.coefficient_bound * seen.norm
        safe = safe_set(upper, self.safe_spec, asked.number, asked.baseline)
        return Bound(seen.reward, safe.intensity, bound_numbers(seen, seen.reward, upper), certified=safe.certified)


@dataclass(frozen=True, kw_only=True)
class Terse(ByNorms):
    """The same rule, with numbers of the user's own in place of those that certificates are written from."""

    name = "terse"

    def rule(self, seen, asked):
        return super().rule(seen, asked)._replace(numbers={"longest": seen.norm, "farthest": math.inf})


@dataclass(frozen=True, kw_only=True)
class Deciding(Mine):
    """HP-UCB with an `if` on what it sees, which JAX cannot compile."""

    def rule(self, seen, asked):
        return super().rule(seen if seen.cost >= 0.0 else seen._replace(), asked)


@dataclass(frozen=True, kw_only=True)
class Changed(Mine):
    """HP-UCB with what it may give, and what it gives, changed by functions, which its options hold."""

    allow: Callable[..., Any] = lambda bound, asked: bound
    give: Callable[..., Any] = lambda dose, bound, asked: dose

    def rule(self, seen, asked):
        return self.allow(super().rule(seen, asked), asked)

    def choose(self, bound, asked):
        return self.give(super().choose(bound, asked), bound, asked)


@dataclass(frozen=True, kw_only=True)
class Misled(Mine):
    """HP-UCB that decides by another spec, estimate or question than it is given."""

    spec_of: Callable[..., Any] = lambda spec: spec
    seen_of: Callable[..., Any] = lambda seen: seen
    asked_of: Callable[..., Any] = lambda asked: asked

    @property
    def safe_spec(self):
        return self.spec_of(super().safe_spec)

    def rule(self, seen, asked):
        return super().rule(self.seen_of(seen), self.asked_of(asked))


@dataclass(frozen=True, kw_only=True)
class Disguised(Policy):
    """A linear policy inside another one, so that nobody sees its linear estimate."""

    name = "disguised"
    guarantee = "certified"
    in_order = True
    excludes = frozenset()
    of: Linear

    @cached_property
    def inner(self):
        return self.of.on(self.task)

    def init(self, lanes=(), *, watch=True):
        return self.inner.init(lanes, watch=watch)

    def bound(self, state, asked):
        return self.inner.bound(state, asked)

    def choose(self, bound, asked):
        return self.inner.choose(bound, asked)

    def tell(self, state, place, told):
        self.inner.tell(state, place, told)
