"""The questions of `safedial choose` in a terminal."""

from __future__ import annotations

import math
from typing import Any

import typer
from click import Choice

from safedial.choosing.questions import QUESTIONS
from safedial.cli.choose_policy import BRACKETS, read_bracket
from safedial.core.spec import CONSTANTS
from safedial.errors import InvalidInput

CONSTANT_WORDS = {
    "reward_noise": "Upper bound on the reward's noise (sub-Gaussian constant)",
    "cost_noise": "Upper bound on the cost's noise (sub-Gaussian constant)",
    "coefficient_bound": "S: upper bound on the norm of the coefficients",
    "context_bound": "L: upper bound on the norm of the contexts",
}


def ask_for(given: dict[str, Any], *, pilot: bool) -> None:
    """Ask for what is not given, and add it. Enter takes the answer in brackets."""
    missing = [name for name in QUESTIONS if name not in given]
    for number, name in enumerate(missing, start=1):
        question = QUESTIONS[name]
        typer.echo(f"\n{number}/{len(missing)}  {question.text}")
        width = max(map(len, question.answers))
        for answer, told in question.answers.items():
            typer.echo(f"     {answer.ljust(width)}  {told.words}")
        usual = question.supported if pilot else next(iter(question.answers))
        answer = typer.prompt("    ", default=usual, type=Choice(list(question.answers)), show_choices=False)
        given[name] = answer
    typer.echo("\nYour plan")
    bracketed, several = given["curve"] == CURVE, "costs" in given
    if not several:
        _number(given, "threshold", "The largest cost that you accept", 0.5)
    _number(given, "risk", "The chance of an excess that you accept in a round", 0.05)
    _number(given, "rounds", "Rounds in the study", 300, whole=True)
    if not pilot:
        _number(given, "dim", "Dimension of the contexts", 5, whole=True)
    if bracketed and not several and "growth" not in given:
        _bracket(given)
    if "start" not in given:
        of = "the protocol's setting" if bracketed else "the dial"
        answer = _prompt(f"A share of {of} that you declare safe for everyone (0: none)", 0.0)
        given |= {"start": answer} if answer else {}
    if not bracketed and not pilot:
        _constants(given)


CURVE = list(QUESTIONS["curve"].answers)[2]


def _constants(given: dict[str, Any]) -> None:
    """The constants, where they are vouched for; else how large the noise may be, for the forecast."""
    told = given["constants"]
    vouches = QUESTIONS["noise"].answers[given["noise"]].vouches
    size = given.get("threshold", 1.0)
    if "constants" in vouches:
        for name, usual in zip(CONSTANTS, (0.6 * size, 0.6 * size, 2.0 * size, 1.0), strict=True):
            _number(told, name, CONSTANT_WORDS[name], usual)
    elif "cost_noise" not in told:
        guess = _prompt("A guess of the noise's deviation at the full dial, for the forecast only", 0.6 * size)
        told |= {"cost_noise": guess, "reward_noise": told.get("reward_noise", guess)}


def _bracket(given: dict[str, Any]) -> None:
    while "growth" not in given:
        text = typer.prompt(f"  The bracket: {BRACKETS}")
        try:
            given["growth"] = read_bracket(text)
        except InvalidInput as error:
            typer.echo(f"  {error}")


def _number(given: dict[str, Any], name: str, words: str, usual: float, *, whole: bool = False) -> None:
    if name not in given:
        given[name] = _prompt(words, usual, whole=whole)


def _prompt(words: str, usual: float, *, whole: bool = False) -> Any:
    shown = f"{usual:g}"
    while True:
        answer = typer.prompt(f"  {words}", default=int(usual) if whole else float(shown), type=int if whole else float)
        if math.isfinite(answer) and answer >= 0:
            return answer
        typer.echo(f"  {answer}: must be a number >= 0")
