"""A small client of the decision service: timeouts, retries that cannot decide twice, and a fallback if all fail.

It remembers the last event of each study that it saw, in memory and, where the user names one, in a file. So each
client is a witness: a service whose log does not hold that event has lost or rewritten what it acknowledged.

It needs only the standard library. If the service is unreachable, overloaded or broken, `ask` returns the fallback
action, marked as such, and logs a warning, so a caller always gets an answer. `tell` has no fallback: it raises
`ServiceUnavailable`. Keep the outcome and send it again later, which is safe.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import random
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from safedial.errors import InvalidInput, is_number, require
from safedial.study.checkpoints import Checkpoint, load_checkpoint

ADVICE = ("action", "id", "seq", "intensity", "safe_action", "certificate", "hash", "replayed", "stop_reason")
"""The fields of an answer to a question, but for `proposal_answer`, which only a proposal has."""


LONGEST_KEY = 200


class Advice(NamedTuple):
    """The setting for the dial. If `fallback` is True, no decision was made, so there is no id to report on.

    `hash` is the hash of the decision's event; `replayed` marks an earlier answer, repeated for the same key;
    `stop_reason` names the rule that has stopped the study since, `amended` says whether its specification has changed
    since; `proposal_answer` says whether a proposal was
    granted, lowered or raised.
    """

    action: float
    id: str | None
    seq: int | None
    intensity: float | None
    safe_action: float | None
    certificate: dict[str, Any] | None
    fallback: bool = False
    reason: str = ""
    hash: str | None = None
    replayed: bool = False
    stop_reason: str = ""
    proposal_answer: str = ""
    amended: bool = False


def read_answer(text: bytes) -> dict[str, Any] | None:
    """The service's answer; None for any other answer, such as a proxy's error page."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def is_advice(answer: Mapping[str, Any]) -> bool:
    """Whether an answer has all fields of advice, and its action is its certificate's and a setting of the dial."""
    if not answer.keys() >= {*ADVICE} or not isinstance(answer["certificate"], dict):
        return False
    action, certificate = answer["action"], answer["certificate"]
    dial = certificate.get("dial")
    low, high = (dial.get("low"), dial.get("high")) if isinstance(dial, dict) else (None, None)
    proper = is_number(action) and is_number(low) and is_number(high)
    return proper and low <= action <= high and certificate.get("action") == action


def read_refusal(status: int, text: bytes) -> InvalidInput:
    """The error for a request that the service refuses."""
    try:
        problem = json.loads(text)
        code, words = problem["code"], problem.get("detail") or problem["title"]
        field = problem.get("field") or ""
        where = f"{field}: " if field and not words.startswith((f"{field}:", f"{field} ")) else ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        code, words, where = "invalid_input", "no further words", ""
    return InvalidInput(f"the service refused ({status} {code}): {where}{words}", code)


# --- The last event of each study that a client saw

log = logging.getLogger("safedial.service.client")


class SeenHead(NamedTuple):
    """An event by its seq and hash."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


class Heads:
    """The last event seen, by study. The file is a JSON object, {study: "SEQ:HASH"}; give each process its own."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._seen = {} if self.path is None or not self.path.exists() else _read(self.path)

    def get(self, study: str) -> SeenHead | None:
        return self._seen.get(study)

    def accept(self, study: str, before: SeenHead | None, answer: Mapping[str, Any], *, newest: bool) -> bool:
        """Whether an answer may come from the log that had the event `before` when it was asked for.

        A new event comes after `before`; one that is repeated may be older; with `newest` it is the log's last event.
        The event is remembered if it is the latest so far.
        """
        seq, name = answer["seq"], answer["hash"]
        old = newest or bool(answer.get("replayed"))
        if before is not None and seq == before.seq and not (old and name == before.hash):
            return False
        if before is not None and seq < before.seq and (newest or not old):
            return False
        with self._lock:
            last = self._seen.get(study)
            if last is None or seq > last.seq:
                self._seen[study] = SeenHead(seq, name)
                self._write()
        return True

    def forget(self, study: str) -> None:
        """Forget a study, after it was restored on purpose."""
        with self._lock:
            self._seen.pop(study, None)
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps({study: str(head) for study, head in self._seen.items()}, indent=2) + "\n")
            os.replace(partial, self.path)
        except OSError as error:  # the request itself was answered
            log.warning("heads = %s: cannot be written (%s)", self.path, error.strerror)


def _read(path: Path) -> dict[str, SeenHead]:
    try:
        marks = {study: text.partition(":") for study, text in json.loads(path.read_text()).items()}
        return {study: SeenHead(int(seq), bytes.fromhex(name).hex()) for study, (seq, _, name) in marks.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        words = 'must be the file that a client wrote, {"study": "SEQ:HASH"}; remove it to begin anew'
        raise InvalidInput(f"heads = {str(path)!r}: {words}") from error


# --- A small client of the decision service

RETRIED = (408, 425, 429, 500, 502, 503, 504)
"""Status codes after which the same request, with the same idempotency key, may succeed."""

CHECKED_SECONDS = 60.0
"""How long a connection is trusted to lead to the log whose head was compared."""


class ServiceUnavailable(ConnectionError):
    """The service did not answer, even after every retry. Send the same request again later."""


class ForkedLog(ServiceUnavailable):
    """The service's log lacks an event that it has acknowledged: it was restored or rewritten, or it is another's."""


class Client:
    """A client of one service. Threads may share it: each thread has its own connection.

    Args:
        url: for example http://127.0.0.1:8000.
        key: an access key, `sd_…`; not needed on loopback while the store has no keys.
        timeout: seconds for each attempt.
        retries: further attempts after the first, with growing pauses.
        fallback_action: the action that `ask` returns if the service does not answer; in the dial's units.
        pause: seconds before the first retry; doubled each time, with random variation.
        heads: a file that keeps the last event of each study that this client saw. It is kept in memory in any case. A
            service whose log lacks that event is refused (`ForkedLog`; `ask` gives the fallback action), until
            `client.heads.forget(study)`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 2.0,
        retries: int = 2,
        fallback_action: float = 0.0,
        pause: float = 0.1,
        heads: str | os.PathLike[str] | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        proper = parts.scheme in ("http", "https") and parts.hostname
        require(proper, "url", url, "must be http://HOST:PORT or https://HOST")
        require(timeout > 0, "timeout", timeout, "must be > 0")
        require(retries >= 0, "retries", retries, "must be >= 0")
        self._parts, self._key = parts, key
        self.timeout, self.retries, self.fallback_action, self.pause = timeout, retries, fallback_action, pause
        self.heads = Heads(heads)
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"Client({self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]})"

    def create_study(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Create a study, or return the existing one with the same specification."""
        body = {"name": name, "spec": dict(spec)}
        return self._witness(name, "POST", "/v1/studies", body, key=f"create-{name}", newest=True)

    def studies(self) -> list[dict[str, Any]]:
        return self._send("GET", "/v1/studies")["studies"]

    def study(self, name: str) -> dict[str, Any]:
        """A study's counts, evidence and specification, and whether and why it has stopped."""
        return self._witness(name, "GET", f"/v1/studies/{_quoted(name)}", newest=True)

    def ask(
        self,
        study: str,
        context: Sequence[float] | Mapping[str, float],
        *,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        proposal: float | None = None,
        unit: str | None = None,
        visit: str | None = None,
    ) -> Advice:
        """Advice for a context; the fallback action if the service does not answer.

        The arguments are those of `Study.ask`; without a key, one is generated. If the service refuses the request (a
        wrong context, a key without the right), `ask` raises `InvalidInput`.
        """
        key = uuid.uuid4().hex if key is None else key
        fits = isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isprintable()
        require(fits, "key", key, f"must be printable text of 1 to {LONGEST_KEY} characters")
        body: dict[str, Any] = {"context": context if isinstance(context, Mapping) else list(context)}
        body |= {"baseline_cost": baseline_cost}
        noted = {"meta": dict(meta) if meta else None, "proposal": proposal, "unit": unit, "visit": visit}
        body |= _given(noted | {"allow_extrapolation": True if allow_extrapolation else None})
        try:
            path = f"/v1/studies/{_quoted(study)}/decisions"
            answer = self._witness(study, "POST", path, body, key=key)
            if not is_advice(answer):
                raise ServiceUnavailable(f"{self!r}: an answer without an action that the dial has")
        except ServiceUnavailable as error:
            log.warning("no advice from the service (%s): using the fallback action %g", error, self.fallback_action)
            return Advice(self.fallback_action, None, None, None, None, None, True, str(error))
        given = {name: answer[name] for name in ADVICE}
        advice = Advice(
            **given, proposal_answer=answer.get("proposal_answer", ""), amended=answer.get("amended", False)
        )
        if advice.replayed and advice.stop_reason:
            log.warning("an earlier answer was given again, and the study has stopped since: %s", advice.stop_reason)
        if advice.replayed and advice.amended:
            log.warning("an earlier answer was given again, and the study was amended since")
        return advice

    def tell(
        self,
        decision_id: str,
        *,
        reward: float | None = None,
        cost: float | Mapping[str, float | None],
        applied_action: float | None = None,
        observed_at: str | None = None,
        throttled: bool = False,
        unrelated: bool = False,
    ) -> dict[str, Any]:
        """Report an outcome, with the options of `Study.tell`; several costs are a mapping. Repeats after a failure are
        recorded only once.
        """
        body: dict[str, Any] = {"cost": _plain(cost), "applied_action": applied_action}
        more = {"observed_at": observed_at, "throttled": throttled, "unrelated": unrelated}
        body |= _given({"reward": reward}) | {name: value for name, value in more.items() if value not in (None, False)}
        return self._about(decision_id, "outcome", body)

    def correct(
        self,
        decision_id: str,
        *,
        reason: str,
        reward: float | None = None,
        cost: float | Mapping[str, float | None] | None = None,
        applied_action: float | None = None,
    ) -> dict[str, Any]:
        """Replace reward, cost or applied_action of an outcome."""
        values = {"reward": reward, "cost": _plain(cost), "applied_action": applied_action}
        return self._about(decision_id, "correction", {"reason": reason} | _given(values), key=uuid.uuid4().hex)

    def void(self, decision_id: str, *, reason: str, unrelated: bool = False) -> dict[str, Any]:
        return self._about(decision_id, "void", {"reason": reason, "unrelated": unrelated})

    def resume(
        self, study: str, reason: str, *, rule: str | None = None, forget: bool = False, unrelated: bool = False
    ) -> dict[str, Any]:
        body = {"reason": reason, "forget": forget, "unrelated": unrelated} | _given({"rule": rule})
        return self._witness(study, "POST", f"/v1/studies/{_quoted(study)}/resume", body, key=uuid.uuid4().hex)

    def amend(
        self,
        study: str,
        spec: Mapping[str, Any] | None = None,
        *,
        reason: str,
        changes: Mapping[str, Any] | None = None,
        from_round: int | None = None,
        keep_learning: bool | None = None,
    ) -> dict[str, Any]:
        """Change a study's specification from the next decision on, as `Study.amend` does."""
        body = {"spec": _plain(spec), "changes": _plain(changes), "from_round": from_round}
        body |= {"keep_learning": keep_learning, "reason": reason}
        path = f"/v1/studies/{_quoted(study)}/amendment"
        return self._witness(study, "POST", path, _given(body), key=uuid.uuid4().hex)

    def decisions(
        self,
        study: str,
        *,
        unit: str | None = None,
        visit: str | None = None,
        search: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """A page of decisions with their outcomes, newest first: `rows`, and `before` to ask for the next page."""
        given = _given({"unit": unit, "visit": visit, "search": search, "before": before, "limit": limit})
        query = urllib.parse.urlencode(given)
        return self._send("GET", f"/v1/studies/{_quoted(study)}/decisions?{query}")

    def unit(self, study: str, unit: str) -> dict[str, Any]:
        """One unit: its course, its own counts, and its long-run statement where there is one."""
        return self._send("GET", f"/v1/studies/{_quoted(study)}/units/{_quoted(unit)}")

    def explain(self, decision_id: str) -> str:
        """Why this action, in plain words."""
        return self._send("GET", f"/v1/decisions/{_quoted(decision_id)}")["explanation"]

    def verify(self, study: str, *, checkpoint: Checkpoint | None = None) -> dict[str, Any]:
        """Check a study's log against a checkpoint that you kept elsewhere (SEQ:HASH, its mapping, or the path of its
        file), or else against the last event that this client saw.
        """
        given = str(self.heads.get(study) or "") if checkpoint is None else load_checkpoint(checkpoint)
        text = given if isinstance(given, str) else json.dumps(dict(given))
        query = f"?checkpoint={_quoted(text)}" if text else ""
        return self._witness(study, "GET", f"/v1/studies/{_quoted(study)}/verify{query}", newest=True)

    def close(self) -> None:
        """Close this thread's connection."""
        self._local.__dict__.pop("checked", None)
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _about(self, decision_id: str, act: str, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        study = str(decision_id).partition(".")[0]
        return self._witness(study, "POST", f"/v1/decisions/{_quoted(decision_id)}/{act}", body, key=key)

    def _witness(
        self, study: str, method: str, path: str, body: Any = None, *, key: str | None = None, newest: bool = False
    ) -> dict[str, Any]:
        """`_send`, where the answer names an event of a study, with `newest` its last one; it must follow the last one
        that was seen before the request.
        """
        before = self.heads.get(study)
        self._check_head(study, before)
        # A retry may make another connection, perhaps to another log.
        answer = self._send(method, path, body, key, recheck=partial(self._check_head, study, before))
        self._check_head(study, before)
        if not (isinstance(answer.get("seq"), int) and isinstance(answer.get("hash"), str)):
            raise ServiceUnavailable(f"{self!r}: an answer that names no event")
        if not self.heads.accept(study, before, answer, newest=newest):
            raise _forked(study, before)
        return answer

    def _check_head(self, study: str, head: SeenHead | None) -> None:
        """Once for each connection, and again after `CHECKED_SECONDS` (behind one connection a proxy may turn to
        another service), compare the event seen last with the one in the service's log.
        """
        checked = self._local.__dict__.setdefault("checked", {})
        if head is None or time.monotonic() < checked.get(study, -math.inf):
            return
        try:
            answer = self._send("GET", f"/v1/studies/{_quoted(study)}/events?from_seq={head.seq}&limit=1")
        except InvalidInput as error:
            if error.code != "unknown_study":
                raise
            raise _forked(study, head) from error
        events = answer.get("events") or [{}]
        if (events[0].get("seq"), events[0].get("hash")) != head:
            raise _forked(study, head)
        # A retry may have closed the connection, and with it what was known about it.
        self._local.__dict__.setdefault("checked", {})[study] = time.monotonic() + CHECKED_SECONDS

    def _send(self, method: str, path: str, body: Any = None, key: str | None = None, *, recheck: Any = None) -> Any:
        headers: dict[str, Any] = {"Content-Type": "application/json"}
        headers |= {} if key is None else {"Idempotency-Key": key.encode()}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content = None if body is None else json.dumps(body, allow_nan=True)
        reason = ""
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 -- no secret
                if recheck is not None:
                    recheck()
            try:
                status, text = self._once(method, path, content, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = type(error).__name__
                continue
            answer = read_answer(text) if status < 300 else None
            if answer is not None:
                return answer
            if status >= 400 and status not in RETRIED:
                raise read_refusal(status, text)
            reason = f"status {status}" if status >= 300 else "an answer that is not the service's"
        raise ServiceUnavailable(f"{self!r}: {reason}, after {self.retries + 1} attempts")

    def _once(self, method: str, path: str, content: str | None, headers: dict[str, Any]) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            connection = kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout)
            self._local.connection = connection
        connection.request(method, self._parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        if response.will_close:
            self._local.__dict__.pop("checked", None)
        return response.status, response.read()


def _forked(study: str, head: SeenHead | None) -> ForkedLog:
    words = f"study {study!r}: event {head and head.seq}, which this client saw, is not in the service's log"
    error = ForkedLog(f"{words}: it was restored or rewritten; client.heads.forget({study!r}) if that was intended")
    log.error("%s", error)
    return error


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _plain(cost: Any) -> Any:
    return dict(cost) if isinstance(cost, Mapping) else cost


def _quoted(name: str) -> str:
    return urllib.parse.quote(str(name), safe="")
