"""NASA's battery ageing experiments as one step table, whatever file they come from."""

from safedial.datasets.battery.fetch import fetch_archive
from safedial.datasets.battery.mat import read_mat
from safedial.datasets.battery.parquet import read_steps
from safedial.datasets.battery.sources import CITATIONS, data_folder, find_sources, load_steps
from safedial.datasets.battery.step_table import COLUMNS, check_steps

__all__ = [
    "CITATIONS",
    "COLUMNS",
    "check_steps",
    "data_folder",
    "fetch_archive",
    "find_sources",
    "load_steps",
    "read_mat",
    "read_steps",
]
