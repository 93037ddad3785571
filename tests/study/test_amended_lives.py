"""What becomes of evidence, marks and costs when a study that was amended goes on."""

import pytest

from safedial.service.read_routes import draw
from safedial.service.timeline import Track
from safedial.study import Store, create_study
from safedial.study.event import orjson
from tests.study.conftest import SPEC

pytestmark = pytest.mark.filterwarnings("ignore")
WHY = {"reason": "a new guideline"}


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as opened:
        yield opened


def page(study):
    """The data of the operator page."""
    track = Track(study)
    track.refresh()
    return orjson.loads(draw(track, 50))


def test_a_correction_before_an_amendment_leaves_the_evidence_after_it(store):
    study = create_study("trial", {**SPEC, "threshold": 3.0, "cost_noise": 1.2, "reward_noise": 0.5}, storage=store)
    first = [study.ask([0.3, 0.2]) for _ in range(8)]
    study.amend(changes={"threshold": 2.9}, **WHY)
    study.tell(study.ask([0.3, 0.2]).id, reward=0.1, cost=3.01)
    evidence, told = study.status()["evidence"], []
    while not study.status()["stopped"]:
        told.append(first.pop())
        study.tell(told[-1].id, reward=0.1, cost=3.01)
    study.resume("looked at it")
    assert study.status()["evidence"] == evidence > 1.5
    assert page(study)["counts"]["evidence"] == evidence
    for each in told:
        study.correct(each.id, cost=0.0, applied_action=0.5 * each.action, reason="typing error")
    assert study.status()["evidence"] == evidence
    assert study.verify().ok
