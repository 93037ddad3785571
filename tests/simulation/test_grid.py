import pytest

from safedial import InvalidInput
from safedial.simulation.sweeps import bundled, cell_key, parse_grid, read_grid

GRID = """
[sweep]
name = "small"
rounds = 40
seeds = 5
seed_block = 2
points = 4
[spec]
threshold = [0.2, 0.5]
violation_risk = 0.01
estimation_risk = 0.01
reward_noise = 1.0
cost_noise = 1.0
coefficient_bound = 1.0
context_bound = 1.0
[world]
dim = 3
[[policy]]
name = "hp_ucb"
radius = ["paper", "mixture"]
[[policy]]
name = "hp_probe"
"""


def test_lists_are_axes_and_cells_all_combinations():
    grid = parse_grid(GRID)
    assert len(grid.cells) == 3 * 2 * 3
    assert len({cell_key(cell) for cell in grid.cells}) == 18
    assert [cell["seeds"] for cell in grid.cells[:3]] == [[0, 1], [2, 3], [4]]


def test_a_cells_name_does_not_depend_on_what_was_left_unsaid():
    said = GRID.replace("dim = 3", 'dim = 3\nnoise = "gaussian"').replace('"hp_probe"', '"hp_probe"\nprobe = "sqrt"')
    assert {cell_key(cell) for cell in parse_grid(said).cells} == {cell_key(cell) for cell in parse_grid(GRID).cells}
    other = GRID.replace("rounds = 40", "rounds = 41")
    assert not {cell_key(cell) for cell in parse_grid(other).cells} & {
        cell_key(cell) for cell in parse_grid(GRID).cells
    }


def test_the_bundled_grids_are_sound():
    assert set(bundled()) == {"paper", "thousand"}
    assert len(read_grid("thousand").cells) == 1000
    assert len(read_grid("paper").cells) == 100


def test_dose_curves_can_be_swept_and_tables_of_points_are_not_axes():
    curves = GRID + '[dose]\ncurve = "hill"\ned50 = [0.3, 0.6]\n'
    assert len(parse_grid(curves).cells) == 36
    table = GRID + '[dose]\ncurve = "tabulated"\nactions = [0.0, 0.5, 1.0]\nintensities = [0.0, 0.2, 1.0]\n'
    assert len(parse_grid(table).cells) == 18


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[world]", "[planet]", "planet"),
        ("rounds = 40", "round = 40", "round"),
        ("rounds = 40", 'rounds = "40"', "rounds"),
        ("seeds = 5", "seeds = 0", "seeds"),
        ("threshold = [0.2, 0.5]", "threshold = []", "empty"),
        ("threshold = [0.2, 0.5]", "treshold = 0.2", "treshold"),
        ("dim = 3", "dim = 1", "dim = 1"),
        ("dim = 3", "dim = [3, 3]", "twice"),
        ('name = "hp_probe"', 'name = "hp_ucb"', "twice"),
        ("[world]", '[[dose]]\ncurve = "hill"\n[world]', "dose"),
        ('name = "hp_probe"', 'name = "hp_prob"', "hp_probe"),
        ("[[policy]]", "[policy]", "TOML|policy"),
    ],
)
def test_a_mistake_in_the_file_is_named(old, new, named):
    with pytest.raises(InvalidInput, match=named):
        parse_grid(GRID.replace(old, new))


def test_a_file_without_policies_or_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="policy"):
        parse_grid(GRID[: GRID.index("[[policy]]")])
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_grid(tmp_path / "none.toml")
