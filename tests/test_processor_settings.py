"""What `make test-portable` sets takes effect, whatever computes this run."""

import subprocess
import sys

import pytest

from tests.processors import AVAILABLE, environment, main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", AVAILABLE)
def test_each_setting_takes_effect_in_a_process_of_its_own(name):
    words = [sys.executable, "-c", f"from tests.processors import shortfall; print(shortfall({name!r}))"]
    told = subprocess.run(words, env=environment(name), capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_a_setting_that_did_not_take_effect_is_said():
    """What one setting does is not what another asks for: another BLAS, other loops, other functions."""
    words = [sys.executable, "-c", "from tests.processors import shortfall; print(shortfall('prescott'))"]
    told = subprocess.run(words, env=environment(AVAILABLE[0]), capture_output=True, text=True, check=True)
    assert (told.stdout == "[]\n") == (AVAILABLE[0] == "prescott")
    for said in ("OpenBLAS computes as Haswell", "NumPy uses X86_V3", "the C library's functions"):
        assert (said in told.stdout) == (AVAILABLE[0] == "haswell")


def test_a_processor_that_is_none_is_refused(capsys):
    assert main(["pentium"]) == 2
    assert "pentium" in capsys.readouterr().out
