"""The id of a decision: STUDY.SEQ.TAG, where the tag is the beginning of the decision's hash.

So an id identifies the decision, not only its place in the log: in a store that was restored and continued, the id of a
lost decision is refused, and no late outcome is assigned to another decision. The log alone suffices to check an id.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from safedial.study.errors import StudyError
from safedial.study.reducer import TAG

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ID = re.compile(rf"({NAME.pattern})\.([0-9]{{1,18}})(?:\.([0-9a-f]{{{2 * TAG}}}))?", re.ASCII)
"""The tag may be missing here, so that `check_id` can say so."""


class DecisionId(NamedTuple):
    """A decision's id in its parts.

    >>> read_id("infusion.2.0f6a33b1")
    DecisionId(study='infusion', seq=2, tag='0f6a33b1')
    >>> str(DecisionId("infusion", 2))
    'infusion.2'
    """

    study: str
    seq: int
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.study}.{self.seq}.{self.tag}" if self.tag else f"{self.study}.{self.seq}"


def read_id(decision_id: Any) -> DecisionId:
    """The parts of an id."""
    found = ID.fullmatch(str(decision_id))
    if found is None:
        words = (
            "is not a decision's id, of the form STUDY.NUMBER.TAG, such as infusion.2.0f6a33b1; the answer to `ask` "
            "has it, and `safedial study waiting STUDY` lists those of open decisions"
        )
        raise StudyError("unknown_decision", f"decision_id = {str(decision_id)[:80]!r}: {words}")
    return DecisionId(found[1], int(found[2]), found[3] or "")


def read_own_id(study: str, decision_id: Any) -> DecisionId:
    """The parts of an id, which must belong to this study."""
    found = read_id(decision_id)
    if found.study != study:
        raise no_decision(decision_id, f" in study {study!r}")
    return found


def id_of(study: str, seq: int, name: bytes) -> DecisionId:
    """The id of a decision, from its event's seq and hash."""
    return DecisionId(study, seq, bytes(name[:TAG]).hex())


def check_id(given: DecisionId, right: DecisionId) -> None:
    """Refuse an id that differs from that of the decision at its seq."""
    if given.tag == right.tag:
        return
    if not given.tag:
        words = "lacks its last part, the beginning of the decision's hash; give the whole id"
    else:
        words = "does not match the decision at this place in the log: it is mistyped, or it was made before the store "
        words += "was restored"
    raise StudyError("unknown_decision", f"decision_id = {str(given)!r}: {words}", public=f"decision_id: {words}")


def no_decision(decision_id: Any, more: str = "") -> StudyError:
    return StudyError("unknown_decision", f"decision_id = {str(decision_id)[:80]!r}: there is no such decision{more}")


def void_already(decision_id: DecisionId, *, other_reason: bool, unrelated: bool) -> StudyError:
    """The refusal of a second void that differs from the first, which was or was not declared `unrelated`."""
    declared = "as unrelated to its outcome" if unrelated else "without stating that this is unrelated to its outcome"
    words = f"is void already, {'for another reason and ' if other_reason else ''}{declared}"
    words += "; a void round stays void as it was declared"
    return StudyError("conflict", f"decision_id = {str(decision_id)!r}: {words}")
