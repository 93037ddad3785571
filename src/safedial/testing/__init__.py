"""`check_policy`: one list of claims that every policy must meet, including your own.

The project's own policies are tested with the same list (`testing.claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from safedial.errors import InvalidInput
from safedial.policies import Policy
from safedial.testing.claims import CLAIMS, SPEC_CLAIMS, SPECS, NotApplicable, plain_spec


class Report(NamedTuple):
    """How many checks ran, which failed (claim → message), and which were not applicable (claim → reason)."""

    policy: str
    checks: int
    failures: dict[str, str]
    not_applicable: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.policy}: {self.checks} checks ran, {len(self.failures)} failed."]
        lines += [f"  failed: {claim}: {reason}" for claim, reason in self.failures.items()]
        return "\n".join([*lines, *self._silent()])

    def _silent(self) -> list[str]:
        """A line for each claim that was not applicable, with the specs under which it was not."""
        found: dict[tuple[str, str], list[str]] = {}
        for claim, why in self.not_applicable.items():
            words, bracket, spec = claim.partition(" (")
            found.setdefault((words, why), []).extend([spec.rstrip(")")] if bracket else [])
        return [f"  not applicable: {words}{_in_brackets(specs)}: {why}" for (words, why), specs in found.items()]


def _in_brackets(specs: list[str]) -> str:
    if not specs:
        return ""
    return " (every spec)" if len(specs) == len(SPECS) else f" ({', '.join(specs)})"


def check_policy(factory: Callable[..., Policy], *, quiet: bool = False) -> Report:
    """Run every claim on the policy that `factory()` makes, print how many checks ran, and return what failed.

    It finds faults that are visible from outside. It is not a proof: a policy that misbehaves only in untested cases
    will pass, and claims that were not applicable were not tested.

    >>> from safedial.policies import hp_ucb
    >>> print(check_policy(hp_ucb, quiet=True))
    hp_ucb: 42 checks ran, 0 failed.
    """
    policy = factory() if callable(factory) else None
    if not isinstance(policy, Policy):
        raise InvalidInput(f"factory = {factory!r}: must be a function that returns a Policy")
    ran, failures, silent = 0, {}, {}
    for name, check in _checks(policy, factory):
        try:
            check()
        except NotApplicable as reason:
            silent[name] = str(reason)
            continue
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        ran += 1
    report = Report(policy.name, ran, failures, silent)
    if not quiet:
        print(report)
    return report


def _checks(policy: Policy, factory: Callable[..., Policy]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every claim in words with its check; some for each of `SPECS`."""
    for claim in CLAIMS:
        yield claim.__name__.replace("_", " "), partial(claim, policy, factory)
    for claim in SPEC_CLAIMS:
        for name, changes in SPECS.items():
            yield f"{claim.__name__.replace('_', ' ')} ({name})", partial(claim, policy, plain_spec(**changes))


__all__ = ["Report", "check_policy"]
