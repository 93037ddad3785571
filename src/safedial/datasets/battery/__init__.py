"""NASA's battery ageing experiments as one step table, whatever file they come from."""

from safedial.datasets.battery.mat import read_mat
from safedial.datasets.battery.parquet import data_folder, read_steps
from safedial.datasets.battery.schema import COLUMNS, check_steps

__all__ = ["COLUMNS", "check_steps", "data_folder", "read_mat", "read_steps"]
