"""Every peer's wrapper solves the world of one feature. `make test-peers`, in the environment of `make peers`."""

from dataclasses import replace

import pytest

from benchmarks.arena.peer import installed
from tests.benchmarks.problems import Near, one_feature, solved

PENALISED = ("MABWiser LinUCB, penalty 1", "bayesianbandits TS, penalty 1")
CONTINUOUS = ("VW CATS, penalty 0", "coba LinTS, penalty 0")


@pytest.mark.parametrize("policy", PENALISED)
def test_a_peer_earns_more_than_any_constant_setting(policy):
    """A constant earns at most 0.3 of a mean tolerance of 0.5 without an excess: a share of 0.6 of the clairvoyant."""
    share, over = solved(policy, 1000)
    mean = share * 0.5 / 1.05
    assert mean - over > 0.3 / 1.05


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_a_peer_with_one_model_of_all_settings_comes_nearer_than_any_constant(policy):
    """A constant is 0.2 away from tolerances of 0.3 and 0.7."""
    share, _ = solved(policy, 2000, world=replace(one_feature(), begin=Near))
    assert share > 0.84


@pytest.mark.parametrize("module", ["vw_cats", "coba_lints", "mabwiser_linucb", "bayesianbandits_ts"])
def test_a_peer_names_its_version(module):
    assert "versions" in installed(module)
