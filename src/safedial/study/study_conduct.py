"""What a person does to a study as a whole: resume it, amend it, mark its log, give it history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput, is_whole, require
from safedial.study import operations
from safedial.study.amendment import amended_spec, new_fields
from safedial.study.answer import Receipt
from safedial.study.history import read_history
from safedial.study.requests import checked_text
from safedial.study.store_reader import Answer
from safedial.study.study_reader import StudyReader
from safedial.study.transaction import StudyTransaction


class StudyConduct(StudyReader):
    """A study that may be resumed, amended, marked and given history."""

    @overload
    def resume(
        self,
        reason: str,
        *,
        rule: str | None = None,
        forget: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
    def resume(
        self,
        reason: str,
        *,
        rule: str | None = None,
        forget: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: Literal[False],
    ) -> Future[Receipt]: ...

    def resume(
        self,
        reason: str,
        *,
        rule: str | None = None,
        forget: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: bool = True,
    ) -> Receipt | Future[Receipt]:
        """Clear the guard's alarm and restart its evidence: a person's decision, with a reason.

        Args:
            rule: the rule that stopped the study, as you know it; refused if another has stopped it since.
            forget: HP-Conformal, HP-Shield and HP-Student: start again without the earlier rounds, stopped or not.
        """
        require(isinstance(forget, bool), "forget", forget, "must be True or False")
        work = partial(
            operations.resume, forget=forget, reason=checked_text("reason", reason), key=checked_text("key", key)
        )
        return self._write(partial(work, rule=checked_text("rule", rule), actor=self._who(actor)), wait)

    def amend(
        self,
        spec: SafetySpec | Mapping[str, Any] | None = None,
        *,
        reason: str,
        changes: Mapping[str, Any] | None = None,
        from_round: int | None = None,
        keep_learning: bool | None = None,
        key: str | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Change the specification from the next decision on, for a reason. Earlier rounds stay judged by the earlier
        rules; the promise and its evidence begin again, unless only labels and rules of the guard that stop a study
        change. A stopped study stays stopped: resume it afterwards.

        Args:
            spec: the whole new specification, as for `create_study`; `dim` and `features` stay as they are and may be
                left out. Or a `SafetySpec`: all but the promise stays.
            changes: or only what differs, {"threshold": 0.6, "guard": {"max_open": 50}}.
            from_round: the round from which on it holds, as a check: it must be the next one.
            keep_learning: True keeps what was learned, or refuses where nothing proves that this is right; False starts
                again, if the promise begins again. By default it is kept where that is proved: if only labels and rules
                of the guard that stop a study change, or, for a certified policy with one cost, only the threshold, the
                fallback and the guard.
        """
        require((spec is None) != (changes is None), "changes", changes, "or spec must be given, but not both")
        whole = from_round is None or is_whole(from_round, 0)
        require(whole, "from_round", from_round, "must be a whole number, that of the next round", "leave it out")
        read = partial(new_fields, given=changes if spec is None else spec, whole=spec is not None)
        with suppress(InvalidInput):  # it warns here; the writer refuses, which knows the present specification
            amended_spec(self.spec, read(self.spec), quiet=False)
        work = partial(operations.amend, read=read, from_round=from_round, keep_learning=keep_learning)
        why, name = checked_text("reason", reason), checked_text("key", key)
        return self._run(partial(work, reason=why, key=name, actor=self._who(actor)))

    def checkpoint(self, reason: str = "", *, actor: str | None = None) -> dict[str, Any]:
        """Mark the log. Keep the answer elsewhere: `verify(checkpoint=...)` then finds any change before it."""
        why = checked_text("reason", reason)
        return self._run(partial(operations.checkpoint, reason=why, actor=self._who(actor)))

    def import_history(
        self, rounds: str | Path | Iterable[Mapping[str, Any]], *, reason: str = "warm start", actor: str | None = None
    ) -> int:
        """Warm start: past rounds from a CSV or parquet file, or from mappings with context, action, reward and cost.

        Either all rounds are imported, before the first decision, or none. Assumed: they are complete and unselected,
        and each action was chosen without knowing anything about its outcome beyond the context. They prove nothing
        about the promise, and the monitor does not count them. A context outside the stated ranges is refused.
        """
        rows = read_history(self.spec.rules, rounds)
        work = partial(
            operations.import_rounds, rounds=rows, reason=checked_text("reason", reason), actor=self._who(actor)
        )
        return self._run(work)

    def _write(
        self, operation: Callable[[StudyTransaction], Answer], wait: bool, key: str | None = None
    ) -> Answer | Future[Answer]:
        future = self.store.submit(self._id, self.name, operation, key=key, spec=self.spec)
        if not wait:
            return future
        self.store.release()  # whoever waits may be the thread that would release
        return future.result()

    def _who(self, actor: str | None) -> str:
        return self.actor if actor is None else checked_text("actor", actor)
