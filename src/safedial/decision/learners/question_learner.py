"""What a learner gives besides if it takes more from a question than its context."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from safedial.decision.learners.protocol import Learner
from safedial.decision.rounds import Asked

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules


class QuestionLearner(Learner):
    """A learner that takes more from a question than its context, and answers in the dial's units.

    If its `written` prediction lists rounds by their numbers, under "exceeding", a study lists their ids there.
    """

    reads_questions = awaits_all = True

    @classmethod
    @abstractmethod
    def read_question(cls, rules: Rules, asked: Asked, proposal: Any) -> Asked:
        """The question, checked, with what the learner takes from it beyond the context (`Asked.stated`)."""

    @abstractmethod
    def ask(self, asked: Asked, *, preview: bool = False) -> Any:
        """`predict`, or `foresee` for a preview, for a question."""

    @abstractmethod
    def settings(self, prediction: Any) -> tuple[float, float]:
        """The setting of a viewed prediction and the largest safe one, in the dial's units."""

    @abstractmethod
    def opened(self, asked: Asked, decision: Decision) -> Any:
        """`open`, with the question and its decision."""
