"""What has no proof, or cannot be held by a log, is refused before anything is written."""

import pytest

from safedial import Dose, InvalidInput, SafetySpec, identity
from safedial.model.dose import DoseCurve
from safedial.model.noise_scale import own_scale
from safedial.study.manage import list_studies
from safedial.study.study import Study


def test_a_study_with_a_dose_curve_of_ones_own_is_refused_before_anything_is_written(store):
    """Its log cannot hold a function: the study was created, and could never be opened again."""
    curve = DoseCurve("mine", {}, lambda action: action * action, lambda intensity: intensity**0.5 * (1 - 1e-12))
    constants = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
    spec = SafetySpec(threshold=0.5, total_risk=0.02, **constants)
    for dose in (curve, Dose(identity(), curve)):
        with pytest.raises(InvalidInput, match="is your own curve, which a log cannot hold"):
            Study.create("mine", spec, storage=store, dim=2, dose=dose)
    with pytest.raises(InvalidInput, match=r"noise_scale.*your own curve, which a log cannot hold"):
        Study.create("mine", {**spec.to_dict(), "noise_scale": own_scale(lambda z, x: z)}, storage=store, dim=2)
    assert list_studies(store) == []
    assert Study.create("mine", spec, storage=store, dim=2, dose=identity()).ask([0.1, 0.2]).action > 0
