"""The paper's experiments and ours. A new one is a file here and a line in `EXPERIMENTS`."""

from safedial.experiments import (
    battery,
    closed_loop,
    conformal,
    epsilon,
    nonlinear,
    power,
    radii_margins,
    synthetic,
    table1,
    theory,
)
from safedial.experiments.experiment import Experiment

EXPERIMENTS: list[Experiment] = [
    table1.EXPERIMENT,
    synthetic.EXPERIMENT,
    theory.EXPERIMENT,
    epsilon.EXPERIMENT,
    conformal.EXPERIMENT,
    nonlinear.EXPERIMENT,
    radii_margins.EXPERIMENT,
    power.EXPERIMENT,
    battery.EXPERIMENT,
    closed_loop.EXPERIMENT,
]
"""In the order of the report."""
