"""What has no proof, or cannot be held by a log, is refused before anything is written."""

import pytest

from safedial import Dose, InvalidInput, SafetySpec, identity
from safedial.core.dose import DoseCurve
from safedial.core.scale import own_scale
from safedial.study import create_study, list_studies

PAIR = {
    "dim": 2,
    "threshold": 0.5,
    "violation_risk": 0.3,
    "promise": "conformal",
    "start_action": 0.1,
    "policy": {"name": "hp_conformal", "form": "full", "confidence": 0.5},
}


def test_a_new_study_with_a_confidence_in_the_full_form_is_refused(store):
    with pytest.raises(InvalidInput, match=r"confidence = 0.5: has no proof with form='full'.*use form='split'"):
        create_study("new", PAIR, storage=store)
    assert list_studies(store) == []
    split = {**PAIR, "policy": {"name": "hp_conformal", "confidence": 0.5}}
    assert create_study("new", split, storage=store).ask([0.3, 0.3]).action == 0.1


def test_a_study_with_a_dose_curve_of_ones_own_is_refused_before_anything_is_written(store):
    """Its log cannot hold a function: the study was created, and could never be opened again."""
    curve = DoseCurve("mine", {}, lambda action: action * action, lambda intensity: intensity**0.5 * (1 - 1e-12))
    constants = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
    spec = SafetySpec(threshold=0.5, total_risk=0.02, **constants)
    for dose in (curve, Dose(identity(), curve)):
        with pytest.raises(InvalidInput, match="is your own curve, which a log cannot hold"):
            create_study("mine", spec, storage=store, dim=2, dose=dose)
    with pytest.raises(InvalidInput, match=r"noise_scale.*your own curve, which a log cannot hold"):
        create_study("mine", {**spec.to_dict(), "noise_scale": own_scale(lambda z, x: z)}, storage=store, dim=2)
    assert list_studies(store) == []
    assert create_study("mine", spec, storage=store, dim=2, dose=identity()).ask([0.1, 0.2]).action > 0
