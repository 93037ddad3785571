"""Amendments: a study's specification changes from the next decision on.

An amendment begins a new phase, unless it changes only what is shown or what stops a study (`SHOWN`, `STOPS`): then
guarantee, learning and evidence go on, and the new guard judges the evidence so far.

The rounds before a new phase stay with their own state, rules and evidence: a late outcome, a correction or a void
goes to the state that decided the round, and may still stop the study. The rounds after it begin a new guarantee, with
new evidence. What is open, and for how long, is limited by the latest guard, for all rounds. Nothing else carries over
but what an amendment must not hide: a stop, the resumes, the earlier amendments, what the stop rule counts (decisions,
and outcomes above the threshold of their own phase) and, on the same dial, the last setting.

The new guarantee begins with nothing learned, as a new study would, unless what was learned does not depend on what
has changed:

* the guard's rules that only stop a study (`STOPS`), and what is only shown (`SHOWN`): whatever the policy, it learns
  the same with others;
* what a policy says that its state stays valid through (`Policy.keeps`). The linear ones of this package say so of the
  threshold, the fallback and the guard: its confidence set is made of contexts and outcomes, without τ, and holds for
  all rounds at once, so it holds for a τ chosen at any time, from whatever was seen, and whatever lowers an action. Its
  risk is spent once, from its first round on. If the noise is learned too, there is no such proof.

The rounds then keep one numbering, one queue and one state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from safedial.errors import require
from safedial.model.spec import NAMES, SafetySpec
from safedial.policies import FACTORIES
from safedial.study.event import Event
from safedial.study.state import State
from safedial.study.study_spec import DEFAULTS, STATED, StudySpec, check_fallback, own_policy, read_spec

FIXED = ("dim", "features")
STOPS = (*(name for name in DEFAULTS if name not in ("caps", "max_step")), *STATED)
"""The rules of a guard that only stop a study, or only show something."""
MOST_AMENDMENTS = 100
"""Each that begins a phase keeps the state before it, in the memory and in the snapshots of a study; later decisions
list them all."""
SHOWN = ("labels",)
"""The fields that are for readers alone."""


def new_fields(spec: StudySpec, given: Any, *, whole: bool) -> dict[str, Any]:
    """A study's fields after an amendment: the `whole` specification is given, or what changes (None drops a field; of
    the guard and the labels, only what is given changes). A `SafetySpec` gives the whole guarantee.
    """
    if isinstance(given, SafetySpec):
        return {name: value for name, value in spec.fields.items() if name not in NAMES} | given.to_dict()
    kind = "spec" if whole else "changes"
    require(isinstance(given, Mapping), kind, type(given).__name__, "must be an object of named values")
    fields = {name: value for name, value in spec.fields.items() if name in FIXED or not whole} | dict(given)
    for name in () if whole else ("guard", "labels"):
        if isinstance(given.get(name), Mapping):
            fields[name] = {**spec.fields.get(name, {}), **given[name]}
    if isinstance(fields.get("labels"), Mapping):
        fields["labels"] = {name: label for name, label in fields["labels"].items() if label is not None}
    return fields


def amended_spec(before: StudySpec, fields: Mapping[str, Any], *, since: int = 0, quiet: bool = True) -> StudySpec:
    """The specification with new fields, which must keep what an amendment cannot change."""
    policy = before.rules.policy
    named = fields.get("policy") if isinstance(fields, Mapping) else None
    same = (named.get("name") if isinstance(named, Mapping) else named) == policy.name
    own = policy if same and policy.name not in FACTORIES else None
    made, brought = read_spec(fields, quiet=quiet, own=own), own_policy(fields)
    kept = brought is None or made.rules.policy is policy
    rule = "is your own, which an amendment cannot bring"
    require(kept, "policy", made.rules.policy.name, rule, "create a new study")
    for name in FIXED:
        kept = made.fields.get(name) == before.fields.get(name)
        rule = "cannot be amended, because one log holds the contexts of all rounds"
        require(kept, name, made.fields.get(name), rule, "create a new study")
    check_fallback(fields, made)
    require(changed_in(before, made), "spec", [], "changes nothing", "state what is to differ from now on")
    began = since if _bound(before, made) else before.began
    return replace(made, before=before, since=since, began=began)


def _bound(before: StudySpec, after: StudySpec) -> list[str]:
    """The changed fields on which learning may depend: all but those that are shown, or that only stop a study. Without
    any the phase goes on, because nothing that is guaranteed, learned or advised changes.
    """
    free = (*(("guard",) if _limits(before) == _limits(after) else ()), *SHOWN)
    return [name for name in changed_in(before, after) if name not in free]


def _limits(spec: StudySpec) -> dict[str, Any]:
    """What of a guard lowers an action; caps, however they are written or named."""
    stated = {name: value for name, value in spec.fields["guard"].items() if name not in STOPS}
    caps = [(cap.limit, sorted(cap.ranges)) for cap in spec.guard.caps]
    return {**stated, "caps": caps}


def check_amendable(name: str, state: State) -> None:
    """Refuse an amendment too many."""
    count = len(state.amendments)
    rule = f"has {count} amendments, the most that one log may hold"
    require(count < MOST_AMENDMENTS, "study", name, rule, "create a new study")


def changed_in(before: StudySpec, after: StudySpec) -> list[str]:
    """The fields that differ."""
    old, new = before.fields, after.fields
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def changes_in(before: StudySpec, after: StudySpec) -> dict[str, Any]:
    """What an amendment changed, the guard rule by rule: [old, new] of each plain value, None where it is not plain."""
    old, new = (
        {**spec.fields, **{f"guard.{name}": value for name, value in spec.fields["guard"].items()}}
        for spec in (before, after)
    )
    names = sorted(name for name in {*old, *new} - {"guard"} if old.get(name) != new.get(name))
    pairs = {name: [old.get(name), new.get(name)] for name in names}
    plain = (str, int, float, type(None))
    return {name: pair if all(isinstance(each, plain) for each in pair) else None for name, pair in pairs.items()}


def keeps_learning(before: StudySpec, after: StudySpec, wanted: Any = None) -> bool:
    """Whether what was learned is kept: where that is proved, unless it is not `wanted`; refused where it is wanted
    without a proof. Where the phase goes on, learning goes on with it.
    """
    proper = wanted is None or isinstance(wanted, bool)
    require(proper, "keep_learning", wanted, "must be True, False or left out")
    rule = "starts learning again, though nothing changes that learning or the guarantee depends on"
    way_out = "leave it out, or create a new study; where no constants are stated: resume with forget"
    require(wanted is not False or _bound(before, after), "keep_learning", wanted, rule, way_out)
    bound = _bound(before, after)
    kept = before.rules.policy.keeps(set(bound))
    rule = f"has no proof here: what was learned may depend on {', '.join(bound)}"
    require(kept or not wanted, "keep_learning", wanted, rule, "leave it out, and learning starts again")
    return kept and wanted is not False


def amended_state(state: State, event: Event, body: Mapping[str, Any]) -> State:
    """The state after an `amended` event, which is checked again."""
    spec = amended_spec(state.study, body["spec"], since=event.seq)
    kept, first = body["keep_learning"], state.decisions + 1
    keeps_learning(state.study, spec, kept)
    require(spec.fields == body["spec"], "spec", event.seq, "is not in its written form")
    require(body["from_round"] == first, "from_round", body["from_round"], f"must be the next round, {first}")
    said = [event.seq, first, event.at, changed_in(state.study, spec), kept, spec.began == event.seq]
    amendments = [*state.amendments, said]
    if spec.began == state.study.began:
        return state.goes_on(spec, amendments)
    made = State(spec, state, kept=kept)
    made.stop_reason, made.resumes, made.amendments = state.stop_reason, list(state.resumes), amendments
    made.new_decisions = state.new_decisions
    made.recent.extend(state.recent)
    if not kept:
        made.learning.begins_after(state.learning)
    if spec.fields["dial"] == state.study.fields["dial"]:
        made.last_action = state.last_action
    if kept:
        made.rounds, made.last_known = state.rounds, state.last_known
    made.rounds_before = [state.decisions, made.rounds]
    made.replayed = state.replayed
    return made
