"""The probe, which a round without expected benefit gets: a share of the safe dose, so that the round teaches."""

from __future__ import annotations

from typing import Any

from safedial.errors import is_number, require


def check_probe(probe: Any, *, always: bool = False) -> None:
    """Refuse what is neither "sqrt" nor a share; where a policy must `always` give some dose, also a share of 0."""
    share = is_number(probe) and 0.0 <= probe <= 1.0
    if always:
        rule = "must be 'sqrt' or a number in (0, 1]"
        require(probe == "sqrt" or (share and probe > 0.0), "probe", probe, rule, "every round must teach")
    require(probe == "sqrt" or share, "probe", probe, "must be 'sqrt' or a number in [0, 1]")


def probe_share(probe: Any, round: Any) -> Any:
    """m_t: 1/√t, or the stated constant."""
    return round**-0.5 if probe == "sqrt" else float(probe)


def check_start_dose(start_dose: Any) -> None:
    """Refuse a declared start dose that is no positive intensity."""
    declared = start_dose is None or (is_number(start_dose) and 0.0 < start_dose <= 1.0)
    require(declared, "start_dose", start_dose, "must be a number in (0, 1]", "or None for the certified one")
