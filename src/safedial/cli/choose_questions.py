"""The questions of `safedial choose` in a terminal. Enter takes the answer in brackets; a question whose answer
does not fit is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import typer

from safedial.choosing.questions import QUESTIONS, Question
from safedial.cli.choose_policy import BRACKETS, read_bracket
from safedial.core.spec import CONSTANTS
from safedial.errors import InvalidInput, require

CONSTANT_WORDS = (
    "The reward's noise: an upper bound on its standard deviation, with tails no heavier than Gaussian ones",
    "The cost's noise: an upper bound on its standard deviation, with tails no heavier than Gaussian ones",
    "How far reward or mean cost can change for a context of length 1 (S, the norm of the coefficients)",
    "The largest length of a context (L, its norm)",
)


def ask_for(given: dict[str, Any], *, pilot: bool) -> None:
    """Ask for what is not given, and add it."""
    missing = [name for name in QUESTIONS if name not in given]
    for number, name in enumerate(missing, start=1):
        typer.echo(f"\n{number}/{len(missing)}  {QUESTIONS[name].text}")
        given[name] = _answer(QUESTIONS[name], pilot)
    several = given["cost"] == "several"
    require(
        not several or "costs" in given, "cost", "several", "needs the costs", "state them in a spec file: --spec FILE"
    )
    typer.echo("\nYour plan")
    vouched = [each for name in QUESTIONS for each in _vouches(name, given[name])]
    bracketed = "growth" in vouched
    if not several:
        _add(given, "threshold", "The largest cost that you accept", "0.5", _positive)
    _add(given, "risk", "The chance of an excess that you accept in a round", "0.05", _risk)
    _add(given, "rounds", "Rounds in the study", "300", _count)
    if not pilot:
        _add(given, "dim", "How many numbers describe a case (the dimension of the contexts)", "5", _count)
    if bracketed and not several:
        typer.echo(
            "  How fast a cost can change with the dial: 1 % more raises it by at most HIGH %, 1 % less lowers it by\n"
            "  at least LOW %, as long as it is above FLOOR (relative); or by LOW to HIGH for each unit (additive)"
        )
        _add(given, "growth", f"The bracket, {BRACKETS}", "relative:0.7,1.4,2", read_bracket)
    of = "the protocol's setting" if bracketed else "the dial"
    words = f"A share of {of} that you declare safe for everyone, or none (then only policies with constants remain)"
    _add(given, "start", words, "none", _share)
    if not bracketed and not pilot:
        _constants(given, stated="constants" in vouched)


def _constants(given: dict[str, Any], *, stated: bool) -> None:
    """The constants, where they are vouched for; else how large the noise may be, for the forecast."""
    told, size = given["constants"], given.get("threshold", 1.0)
    usual = [f"{number:g}" for number in (0.6 * size, 0.6 * size, 2.0 * size, 1.0)]
    if stated:
        if given["cost"] == "zero-one":
            _add(told, "odds", "Odds of an event at the full dial in context 0", "0.25", _positive)
        for name, words, number in zip(CONSTANTS, CONSTANT_WORDS, usual, strict=True):
            _add(told, name, words, number, _positive)
    else:
        guess = "A guess of the noise's deviation at the full dial, for the forecast only"
        _add(told, "cost_noise", guess, usual[1], _positive)
        told.setdefault("reward_noise", told["cost_noise"])


def _answer(question: Question, pilot: bool) -> str:
    width = max(map(len, question.answers))
    for answer, told in question.answers.items():
        typer.echo(f"     {answer.ljust(width)}  {told.words}")
    usual = question.supported if pilot else next(iter(question.answers))
    return _ask("   ", usual, lambda text: _one_of(text, tuple(question.answers)))


def _one_of(text: str, answers: tuple[str, ...]) -> str:
    """The answer that the text begins, if there is only one."""
    begun = [each for each in answers if each.startswith(text.lower())]
    require(len(begun) == 1, "answer", text, "must be one of " + ", ".join(answers))
    return begun[0]


def _vouches(name: str, answer: Any) -> tuple[str, ...]:
    words = {True: "yes", False: "no"}.get(answer, answer)
    return QUESTIONS[name].answers[words].vouches if words in QUESTIONS[name].answers else ()


def _add(given: dict[str, Any], name: str, words: str, usual: str | None, read: Callable[[str], Any]) -> None:
    if name not in given:
        given[name] = _ask(f"  {words}", usual, read)


def _ask(words: str, usual: str | None, read: Callable[[str], Any]) -> Any:
    while True:
        text = typer.prompt(words, default=usual)
        try:
            return read(str(text).strip())
        except InvalidInput as error:
            typer.echo(f"  {error}")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    require(math.isfinite(value) and value > 0.0, "answer", text, "must be a number > 0")
    return value


def _risk(text: str) -> float:
    require(_positive(text) < 0.5, "answer", text, "must be below 0.5")
    return float(text)


def _share(text: str) -> float | None:
    if text.lower() in ("none", "0"):
        return None
    require(_positive(text) <= 1.0, "answer", text, "must be at most 1")
    return float(text)


def _count(text: str) -> int:
    require(text.isdecimal() and int(text) >= 1, "answer", text, "must be a whole number >= 1")
    return int(text)
