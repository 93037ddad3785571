"""The spec file: written and read back, refused with the table's name, taken by simulate, sweep and an agent."""

import numpy as np
import pytest

from safedial import InvalidInput, hill, load_spec, power, save_spec
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose
from safedial.rounds.specfile import EXAMPLE, SpecFile, parse_spec, spec_text
from safedial.simulation.sweeps import build, parse_grid
from tests.conftest import make_spec

FULL = SpecFile(
    spec=make_spec(context_bound=2, cost_sensor_noise=0.1, guarantee="joint"),
    dose=Dose(hill(0.4, 2.0), power(1.5)),
    dim=3,
    policy={"name": "hp_probe", "probe": 0.1},
    features=Features(names=("age", 'the "other"'), center=(50, 1), scale=(30, 2), intercept=True),
    dial=Dial(high=20, unit="mg", levels=(0.5, 20)),
    labels={"cost": "trough", "cost_unit": "mg/l"},
)


def test_what_is_saved_is_loaded(tmp_path):
    path = save_spec(FULL, tmp_path / "spec.toml", notes={"": "Made\nby hand.", "threshold": "the largest cost"})
    again = load_spec(path)
    assert "# Made\n# by hand.\n" in path.read_text()
    assert "# the largest cost\nthreshold" in path.read_text()
    assert again.spec == FULL.spec
    assert again.dose.to_dict() == FULL.dose.to_dict()
    assert (again.dim, again.policy, again.features, again.dial) == (3, FULL.policy, FULL.features, FULL.dial)
    assert again.labels == FULL.labels
    assert spec_text(again) == spec_text(FULL)


def test_a_noise_scale_and_a_margin_are_written_too():
    for changes in (
        {"noise_scale": {"scale": "with_sensor", "ratio": 0.1}},
        {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01},
    ):
        file = SpecFile(spec=make_spec(**changes), dim=2)
        assert parse_spec(spec_text(file)).spec.to_dict() == file.spec.to_dict()


def test_a_spec_file_makes_an_agent():
    agent = parse_spec(spec_text(FULL)).agent()
    assert agent.policy.options["probe"] == 0.1
    assert agent.dial.unit == "mg"
    assert agent.ask({"age": 60, 'the "other"': 1}).action >= 0
    assert parse_spec(EXAMPLE).agent(policy="hp_ucb").policy.name == "hp_ucb"
    with pytest.raises(InvalidInput, match="dim"):
        SpecFile(spec=make_spec()).agent()


def test_a_spec_file_is_a_grid_of_one_cell():
    grid = parse_grid(spec_text(FULL))
    assert len(grid.cells) == 1
    assert build(grid.cells[0])["dose"].to_dict() == FULL.dose.to_dict()
    wider = parse_grid(spec_text(FULL).replace("exponent = 1.5", "exponent = [1.0, 1.5]"))
    assert len(wider.cells) == 2


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[spec]", "[speck]", "speck"),
        ("[spec]", "spec = 1\n[world]", "spec"),
        ("threshold = 0.5", "threshold = -1", "threshold"),
        ("threshold = 0.5", "threshold = [0.5, 1]", "sweep"),
        ("threshold = 0.5", "treshold = 0.5", "treshold"),
        ("dim = 2", "dim = 0", "dim"),
        ("dim = 2", 'dim = 2\n[dose]\ncurve = "cubic"', "cubic"),
        ("dim = 2", 'dim = 2\n[dose.cost]\ncurve = "identity"', "dose"),
        ("dim = 2", 'dim = 2\n[[policy]]\nname = "hp_usb"', "hp_ucb"),
        ("dim = 2", "dim = 2\n[[policy]]\nprobe = 0.1", "name"),
        ("dim = 2", 'dim = 2\n[[policy]]\nname = "fixed"\n[[policy]]\nname = "hp_ucb"', "policy"),
        ("dim = 2", 'dim = 2\n[features]\nnames = ["a"]', "features"),
        ("dim = 2", "dim = 2\n[dial]\nlength = 3", "length"),
        ("dim = 2", "dim = 2\n[dial", "TOML"),
        ("dim = 2", "dim = 2\n[dail]\nhigh = 3", r"did you mean \[dial\]"),
        ("[spec]", "labels = 3\n[spec]", "labels = 3: must be an object of names"),
    ],
)
def test_a_mistake_is_named(old, new, named):
    with pytest.raises(InvalidInput, match=named):
        parse_spec(EXAMPLE.replace(old, new))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.toml"):
        load_spec(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        load_spec(tmp_path / "bytes.toml")
    with pytest.raises(InvalidInput, match="cannot be written"):
        save_spec(FULL, tmp_path / "none" / "spec.toml")
    assert np.all([path.name == "bytes.toml" for path in tmp_path.iterdir()])


def test_a_spec_file_with_a_pair_that_has_no_proof_opens_and_makes_no_agent():
    """Files that exist stay readable; a new agent is refused with the way out."""
    text = '[spec]\nthreshold = 0.5\nviolation_risk = 0.6\nguarantee = "student"\n[world]\ndim = 2\n'
    file = parse_spec(text + '[[policy]]\nname = "hp_student"\nstart_dose = 0.1\n')
    assert spec_text(parse_spec(spec_text(file))) == spec_text(file)
    with pytest.raises(InvalidInput, match=r"violation_risk = 0.6: must be below 0.5 for hp_student"):
        file.agent()
