"""What each kind of event means, and what the events of a round say together. No other module interprets kinds: the
learner, the tables, the operator page and `verify` all ask here, so they cannot disagree about a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

from safedial.decision.rounds import next_status

VALUES = ("reward", "cost", "applied_action", "throttled")
"""The fields of an outcome in the body of its event."""


class Kind(NamedTuple):
    """What events of a kind do. `status` is the new status of their round, if they have one.

    `reports`: states values of an outcome, which count from then on. `loses`: the outcome is no longer expected, and if
    `final` no longer accepted. `revises`: changes an earlier outcome, if there was one.
    """

    status: str = ""
    decides: bool = False
    imports: bool = False
    reports: bool = False
    loses: bool = False
    final: bool = False
    revises: bool = False
    stops: bool = False
    resumes: bool = False
    amends: bool = False
    creates_study: bool = False
    confirms_snapshot: bool = False


class _Kinds(dict[str, Kind]):
    def __missing__(self, kind: str) -> Kind:
        """An event of an unknown kind says nothing here."""
        return Kind()


EVENT_KINDS = _Kinds({
    "study_created": Kind(creates_study=True),  # the whole specification
    "imported": Kind("imported", imports=True),  # a round from before the study, with its outcome
    "decided": Kind("open", decides=True),  # context, prediction, action, the numbers of its certificate
    "outcome": Kind("known", reports=True),  # reward, cost, applied action
    "correction": Kind("corrected", reports=True, revises=True),  # values that replace those of an outcome
    "voided": Kind("void", loses=True, final=True, revises=True),  # a round without an outcome that counts
    "expired": Kind("expired", loses=True),  # an outcome that is no longer expected
    "alarm": Kind(stops=True),  # the guard stopped the study: which rule, on what evidence
    "resumed": Kind(resumes=True),  # a person cleared an alarm
    "amended": Kind(amends=True),  # the specification from the next decision on; about event 1
    "checkpoint": Kind(),  # seq and hash were given out, to be kept elsewhere
    "snapshot": Kind(confirms_snapshot=True),  # the digest of the stored state after the previous event
})  # fmt: skip

DECISIONS = tuple(kind for kind, means in EVENT_KINDS.items() if means.decides)
REVISIONS = tuple(kind for kind, means in EVENT_KINDS.items() if means.revises)
ROUTINE = tuple(
    kind
    for kind, means in EVENT_KINDS.items()
    if means.decides or means.imports or means.confirms_snapshot or (means.reports and not means.revises)
)
"""What every round brings. The rest stands out in an audit: alarms, resumes, corrections, rounds taken out."""


def waits(body: Mapping[str, Any], awaits_all: bool) -> bool:
    """Whether a decision waits for an outcome: if it gives something, or, where the learner `awaits_all`, unless a cap
    of the study gives nothing to contexts like this one.
    """
    return body["intensity"] > 0.0 or (awaits_all and body["limiter"] not in ("mask", "cap"))


class RoundHistory(NamedTuple):
    """What the log says about a round so far. `values` are the `VALUES` that count; `outcome` is the event that first
    stated them, `void` the one that voided the round.
    """

    status: str = ""
    action: float | None = None
    values: dict[str, Any] | None = None
    unrelated: bool | None = None
    outcome: Any = None
    void: Any = None

    @classmethod
    def of(cls, events: Iterable[Any]) -> RoundHistory:
        """What events about a decision said, in order."""
        return reduce(lambda known, event: known.after(event, event.fields()), events, cls())

    @property
    def applied(self) -> Any:
        """The applied setting: the advised one, unless the outcome states another."""
        stated = None if self.values is None else self.values["applied_action"]
        return self.action if self.values and stated is None else stated

    def after(self, event: Any, body: Mapping[str, Any], awaits_all: bool = False) -> RoundHistory:
        """The history with one more event about the round; `awaits_all` is the learner's."""
        means = EVENT_KINDS[event.kind]
        throttled, given = bool(body.get("throttled")), not means.decides or waits(body, awaits_all)
        return RoundHistory(
            next_status(self.status, means.status, throttled=throttled, given=given),
            body["action"] if means.decides else self.action,
            {name: body.get(name) for name in VALUES} if means.reports or means.imports else self.values,
            body.get("unrelated", self.unrelated),
            self.outcome or (event if means.reports else None),
            event if means.final else self.void,
        )
