"""The five questions: what a user can vouch for.

An answer vouches for assumptions, by name. What is not answered is not vouched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from safedial.errors import require

ASSUMPTIONS = {
    "exact_curve": "exact curve",
    "growth": "bracket",
    "linear": "linear cost",
    "constants": "constants",
    "gaussian": "Gaussian noise",
    "exchangeable": "exchangeable rounds",
    "start": "safe start",
}
"""What a promise may rest on, in short."""

MEANING = {
    "exact_curve": "the cost is in proportion to a dose curve that is known exactly",
    "growth": "a unit's cost never falls when the dial rises, and changes between two known rates (growth bracket)",
    "linear": "the mean cost is linear in the context (for costs of 0 or 1, its log-odds are)",
    "constants": "upper bounds on the noise (κ) and on the norms of coefficients (S) and contexts (L) are known",
    "gaussian": "the cost's noise is Gaussian, independent and of one size, and contexts do not follow past costs",
    "exchangeable": "rounds are as if drawn at random, without drift or carry-over",
    "start": "you declare a start safe for everyone: a share of the dial or, with a bracket, of the base",
}
"""The same in full."""


class Question(NamedTuple):
    """A question, and its answers with the assumptions that each vouches for; the first is that of a user who does not
    answer. `supported` is the answer that a pilot supports where nothing in it contradicts it.
    """

    text: str
    answers: dict[str, tuple[str, ...]]
    supported: str


QUESTIONS = {
    "curve": Question(
        "How does the cost of one unit change with the dial?",
        {"unknown": (), "exact": ("exact_curve",), "bracket": ("growth",)},
        "exact",
    ),
    "noise": Question(
        "What do you know of the cost's noise?",
        {"unknown": (), "constants": ("constants",), "gaussian": ("gaussian",), "both": ("constants", "gaussian")},
        "constants",
    ),
    "linear": Question(
        "Is the mean cost linear in the context (for costs of 0 or 1: the log-odds)?",
        {"no": (), "yes": ("linear",)},
        "yes",
    ),
    "exchangeable": Question(
        "Are rounds exchangeable: as if drawn at random, without drift or carry-over?",
        {"no": (), "yes": ("exchangeable",)},
        "yes",
    ),
    "cost": Question("What is measured as the cost?", {"measured": (), "zero-one": (), "several": ()}, "measured"),
}
"""By the names of the arguments of `choose` and of the options of `safedial choose`."""


def read_answers(given: Mapping[str, Any], *, pilot: bool = False) -> dict[str, str]:
    """An answer to every question; True and False are yes and no, None is not answered.

    >>> read_answers({"curve": "exact", "linear": True})["linear"]
    'yes'
    """
    found = {}
    for name, question in QUESTIONS.items():
        answer = given.get(name)
        if answer is None:
            answer = question.supported if pilot else next(iter(question.answers))
        elif isinstance(answer, bool):
            answer = "yes" if answer else "no"
        rule = "must be one of " + ", ".join(question.answers)
        require(answer in question.answers, name, given.get(name), rule, question.text)
        found[name] = answer
    return found


def vouched(answers: Mapping[str, str]) -> tuple[str, ...]:
    """The assumptions that these answers vouch for."""
    return tuple(each for name, question in QUESTIONS.items() for each in question.answers[answers[name]])
