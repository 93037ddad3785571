"""What a study answers: decisions with their certificates, and receipts for everything else.

The id of a decision is STUDY.SEQ.TAG, where the tag is the beginning of the decision's hash. So an id identifies the
decision, not only its place in the log: in a store that was restored and continued, the id of a lost decision is
refused, and no late outcome is assigned to another decision. The log alone suffices to check an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from safedial.model.guarantee import GUARANTEES
from safedial.policies.policy import ALARM_AT
from safedial.policies.words import REPORTED
from safedial.rounds.certificate import certificate, explain, proposed
from safedial.rounds.decision import Certificate, Decision, Text
from safedial.study.event import Event, moment
from safedial.study.reducer import QUESTION, TAG, decision_of
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec

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


# --- A study's own names and units in the sentences of its certificates


def labelled(words: str, labels: Mapping[str, str]) -> str:
    """Words of this package with what a study calls its cost and its reward, and with their units.

    >>> labelled("P(cost > 20) <= 0.1, whatever earlier costs were", {"cost": "trough", "cost_unit": "mg/l"})
    'P(trough > 20 mg/l) <= 0.1, whatever earlier trough values were'
    """
    for word in ("cost", "reward"):
        name, unit = labels.get(word, word), labels.get(f"{word}_unit")
        if unit:
            words = re.sub(rf"\b{word} ([<>]=? )?[-+.e\d]*\d", lambda found, unit=unit: f"{found[0]} {unit}", words)
        if name != word:
            words = re.sub(rf"\b{word}s\b", lambda _, name=name: f"{name} values", words)
            words = re.sub(rf"\b{word}\b", lambda _, name=name: name, words)
    return words


# --- What a study answers: decisions with their certificates, and receipts for everything else

FEEDBACK = {
    "prefix": "the model uses the longest run of rounds, from the first, whose outcomes are all known; outcomes may "
    "come late for any reason, and every outcome, correction and void states what happened, whatever it was",
    "arrival": "outcomes are learned from as they come (chosen for this study): delays do not depend on outcomes, and "
    "contexts do not depend on outcomes that are not yet reported",
}
VOIDED = "rounds that were left out were void for reasons unrelated to their outcomes"
LEFT_OUT = (
    "void rounds that somebody vouched for were void for reasons unrelated to their contexts, settings and outcomes, "
    "and are left out; void rounds that nobody vouched for count as exceeding"
)
KEPT = (
    "the estimate also uses rounds from before the amendment, which changed nothing that the estimate rests on; its "
    "risk is counted from its first round on, the guarantee from the amendment on"
)
RECORDED = (
    *("model_seq", "open", "void", "imported", "limiter", "version", "resumed"),
    *("frozen", "evidence", "violations", "unwatched", "corrected_violations"),
)
"""What a certificate takes from a decision's event as it stands there."""
AMENDED = ("seq", "from_round", "at", "changed", "keep_learning", "begins_phase")
"""What a decision's event says of each amendment."""
IMPORTED = (
    "the imported rounds are complete and unselected, and their actions were chosen without knowing anything about "
    "their outcomes beyond the contexts"
)


class StudyDecision(NamedTuple):
    """One advised action of a study: `id` and `seq` identify it, `decision` holds the numbers, `hash` is its event's.

    In an answer to `ask`, `replayed` says whether the same request with the same key was answered before,
    `stop_reason` names the rule that has stopped the study by now, or is "", and `amended` says whether its
    specification has changed since.
    """

    id: str
    seq: int
    study: str
    at: int
    body: dict[str, Any]
    decision: Decision
    learning_order: str
    hash: str = ""
    replayed: bool | None = None
    stop_reason: str | None = None
    amended: bool | None = None
    labels: Mapping[str, str] = {}
    guard: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        dial, safe = self.decision.rules.dial, self.safe_action
        words = f"action={dial.text(self.action)}, safe_action={'None' if safe is None else dial.text(safe)}"
        return f"StudyDecision({self.id!r}, {words}, guarantee={self.guarantee!r})"

    @property
    def action(self) -> float:
        return self.decision.action

    @property
    def intensity(self) -> float:
        return self.decision.intensity

    @property
    def safe_action(self) -> float | None:
        return self.decision.safe_action

    @property
    def guarantee(self) -> str:
        return self.decision.guarantee

    @property
    def limit(self) -> str:
        return self.decision.limit

    @property
    def proposal_answer(self) -> str:
        return self.decision.proposal_answer

    @property
    def certificate(self) -> Certificate:
        """Every number and assumption behind the action, as plain values."""
        return self._certificate(shared=False)

    def _certificate(self, *, shared: bool) -> Certificate:
        facts = certificate(self.decision, shared=shared)
        rests = [FEEDBACK[self.learning_order] if words == REPORTED else words for words in facts["assumptions"]]
        rules, body = self.decision.rules, self.body
        if rests and body["void"] and GUARANTEES[self.guarantee].standing != 0.0:  # a declared start rests on no round
            rests.append(VOIDED if rules.policy.in_order else LEFT_OUT)
        amended = [dict(zip(AMENDED, each, strict=True)) for each in body.get("amended", ())]
        begun = [each for each in amended if each["begins_phase"]]
        if rests and begun and begun[-1]["keep_learning"]:
            rests.append(KEPT)
        if rests and body["imported"] and rules.policy.history_counts:
            rests.append(IMPORTED)
        if rules.policy.names_rounds:
            ids = [f"{self.study}.{each}" for each in facts["count"]["exceeding"]]
            facts["count"] = {**facts["count"], "exceeding": ids}
        facts |= {
            "id": self.id,
            "study": self.study,
            "seq": self.seq,
            "at": moment(self.at),
            "learning_order": self.learning_order,
            "guard": self.guard if shared else deepcopy(self.guard),
            **{name: body[name] for name in RECORDED},
            "resumed": [
                {"seq": seq, "rule": rule, "at": moment(at), "forget": forget}
                for seq, rule, at, forget in body["resumed"]
            ],
            "key": body.get("key"),
            "meta": body.get("meta"),
        }
        if amended:
            facts["amended"] = [{**each, "at": moment(each["at"])} for each in amended]
        facts |= {name: body[name] for name in (*QUESTION, "start_evidence") if name in body}
        facts |= {"raw_context": self._raw(), "assumptions": rests}
        return facts

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()

    def _raw(self) -> dict[str, float] | list[float]:
        """The context as given, by feature names if there are any."""
        raw, features = self.body["context"], self.decision.rules.features
        return raw if features is None else dict(zip(features.names, raw, strict=True))

    def explain(self) -> Text:
        """The certificate in plain words."""
        facts = self.certificate
        head = f"{self.id}, {facts['at']}: {facts['open']} outcomes open, {facts['void']} void at that time."
        lines = [head, *self._notes(), *self._who(facts), labelled(explain(self.decision, facts), self.labels)]
        lines.append(labelled(self._watched(facts), self.labels))
        if facts.get("unwatched"):
            lines.append(f"  Rounds that ended without an outcome to judge the guarantee by: {facts['unwatched']}.")
        if facts.get("corrected_violations"):
            words = labelled("costs above the threshold that corrections took back", self.labels)
            lines.append(f"  {words[0].upper()}{words[1:]}: {facts['corrected_violations']}.")
        if facts.get("frozen"):
            lines.append("  Learning has ended: a round was lost for a reason that may be related to its outcome.")
        for each in facts.get("amended", ()):
            words = f"Amended from round {each['from_round']} of the study on, {each['at'][:10]}"
            after = "what was learned was kept" if each["keep_learning"] else "learning began again at round 1"
            after = f"the guarantee counts from there; {after}" if each["begins_phase"] else "the guarantee goes on"
            lines.append(f"  {words} ({', '.join(each['changed'])}): {after}.")
        for each in facts.get("resumed", ()):
            what = f"Resumed after {each['rule']}" if each["rule"] else "Started again"
            lines.append(f"  {what}{' without the earlier rounds' * each['forget']} on {each['at'][:10]}.")
        return Text("\n".join(lines))

    def _watched(self, facts: dict[str, Any]) -> str:
        """What the watch has seen, and the rules of the guard."""
        stops = 1.0 / self.guard["alarm_level"] if self.decision.rules.policy.counts else ALARM_AT
        seen = f"evidence {facts['evidence']:.3g} (an alarm at {stops:.6g}), "
        if "start_evidence" in facts:
            seen += f"evidence against the declared start {facts['start_evidence']:.3g} (at {ALARM_AT:g}), "
        seen += "costs above the threshold: "
        rules = ", ".join(f"{name} {value}" for name, value in self.guard.items() if value not in (None, [], {}))
        return f"  Watched so far: {seen}{facts['violations']}. Guard: {rules}."

    def _who(self, facts: dict[str, Any]) -> list[str]:
        """The unit, the visit, the metadata and the features. Without a visit's label, the key stands for it."""
        features, lines = self.decision.rules.features, []
        unit = self.labels.get("unit", "unit")
        named = {
            f"{unit[0].upper()}{unit[1:]}": facts.get("unit"),
            "Visit": facts.get("visit"),
            "Key": facts.get("key"),
        }
        if named["Visit"] is None:
            named["Visit"] = named.pop("Key")
        lines += [f"  {word}: {label}." for word, label in named.items() if label is not None]
        if facts.get("meta"):
            lines.append("  Noted: " + ", ".join(f"{name} {value}" for name, value in facts["meta"].items()) + ".")
        if features is not None:
            lines.append(f"  For: {features.text(self.body['context'])}.")
        return lines

    def _notes(self) -> list[str]:
        """Notes on a repeated answer, and on a study that has stopped or was amended since."""
        if not self.replayed:
            return []
        lines = ["  Repeated: the same request with the same key got this answer before."]
        if self.stop_reason and self.decision.fallback_reason != self.stop_reason:
            fallback = self.decision.rules.dial.text(self.decision.rules.fallback_action)
            lines.append(
                f"  THE STUDY HAS STOPPED SINCE ({self.stop_reason}): it now advises the fallback, {fallback}."
            )
        if self.amended:
            lines.append("  THE STUDY WAS AMENDED SINCE: ask with another key for the advice of its present rules.")
        return lines

    def to_dict(self, *, shared: bool = False) -> dict[str, Any]:
        """Plain values, as in the answers of the command line and the service. If they are `shared`, parts of them are
        those of other decisions too, to be read only.
        """
        known = {"replayed": self.replayed, "stop_reason": self.stop_reason, "amended": self.amended}
        return {
            **{name: getattr(self, name) for name in ("id", "seq", "hash", "action", "intensity", "safe_action")},
            **proposed(self.decision),
            **{name: value for name, value in known.items() if value is not None},
            "certificate": self._certificate(shared=shared),
        }


class Receipt(NamedTuple):
    """What was written: the event's seq and hash, and whether this call wrote it (False: the same was there already).

    Seq and hash are a checkpoint: with them `verify` can tell whether anything before was changed.
    """

    decision_id: str | None
    seq: int
    created: bool = True
    hash: str = ""
    stop_reason: str | None = None
    """Of a resume: the rule that has stopped the study again at once, or "" if none has; else None."""

    def __repr__(self) -> str:
        return f"Receipt(decision_id={self.decision_id!r}, seq={self.seq}, created={self.created})"

    def to_dict(self) -> dict[str, Any]:
        named = {"decision_id": self.decision_id} if self.decision_id else {}
        after = {} if self.stop_reason is None else {"stop_reason": self.stop_reason}
        return {**named, "seq": self.seq, "hash": self.hash, "replayed": not self.created, **after}


def receipt(decision_id: DecisionId | None, event: Event, created: bool = True) -> Receipt:
    """The receipt of an event."""
    return Receipt(None if decision_id is None else str(decision_id), event.seq, created, bytes(event.hash).hex())


def decided(
    spec: StudySpec,
    name: str,
    event: Event,
    context: Any,
    body: dict[str, Any] | None = None,
    *,
    replayed: bool | None = None,
    stop_reason: str | None = None,
    amended: bool | None = None,
) -> StudyDecision:
    """The answer for a `decided` event. It is made from the body, so that a new decision and the same one read later
    agree, whatever numbers your own policy uses.
    """
    body = event.fields() if body is None else body
    decision = decision_of(spec.rules, body, context)
    named, labels = str(id_of(name, event.seq, event.hash)), spec.fields.get("labels", {})
    given = (named, event.seq, name, event.at, body, decision, spec.learning_order, bytes(event.hash).hex())
    return StudyDecision(*given, replayed, stop_reason, amended, labels, spec.fields["guard"])


def shown_event(event: Event, decision_id: str | None, body: Callable[[Event], Any] = Event.fields) -> dict[str, Any]:
    """An event as plain values, with the id of its decision; `body` gives its body."""
    return {
        "seq": event.seq,
        "kind": event.kind,
        "decision_id": decision_id,
        "at": moment(event.at),
        "actor": event.actor,
        "reason": event.reason,
        "body": body(event),
        "hash": bytes(event.hash).hex(),
    }
