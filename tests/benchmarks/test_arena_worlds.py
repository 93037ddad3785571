"""The worlds of the arena: what they show, what a setting does, and what is refused."""

import numpy as np
import pytest

from benchmarks.arena.registry import WORLDS, make_world
from benchmarks.arena.warfarin import published_dose, read_patients
from tests.benchmarks.problems import warfarin_file


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(warfarin_file(tmp_path_factory.mktemp("warfarin")))


def rounds_of(world, seeds, rounds=4):
    stream, seen = world.begin(seeds, rounds), []
    for _ in range(rounds):
        before = stream.context, stream.protocol
        seen.append((*before, *stream.act(np.full(len(seeds), 0.3))[:3]))
    return [np.stack(part) for part in zip(*seen, strict=True)]


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_keeps_to_its_protocol_and_seeds_do_not_depend_on_their_neighbours(name, data):
    world = make_world(name, 0.05, data)
    both, alone = rounds_of(world, [0, 3]), rounds_of(world, [3])
    context, protocol, *outcomes = both
    assert context.shape == (4, 2, world.dim)
    assert np.all(np.linalg.norm(context, axis=-1) <= world.context_bound + 1e-9)
    assert np.all((protocol > 0.0) & (protocol <= 1.0))
    assert all(part.shape == (4, 2) and np.all(np.isfinite(part)) for part in outcomes)
    for part, own in zip(both, alone, strict=True):
        np.testing.assert_allclose(part[:, 1], own[:, 0], rtol=1e-9, atol=1e-12)


def test_the_published_algorithm_by_hand(data):
    rows = read_patients(data)
    assert len(rows) == 60
    root = 5.6044 - 0.2614 * 6 + 0.0087 * 178 + 0.0128 * 80
    np.testing.assert_allclose(published_dose(rows)[:3], [root**2, (root - 0.8677) ** 2, (root - 1.6974) ** 2])


def test_a_dose_of_warfarin_is_compared_with_the_need(data):
    stream = make_world("warfarin", 0.05, data).begin([0], 5)
    usual = stream.protocol
    outcome = stream.act(usual)
    share = float(outcome.cost[0])
    assert float(outcome.reward[0]) == min(share, 1.0)
    assert outcome.measures["within_20_percent_of_need"][0] == (abs(share - 1.0) <= 0.2)
