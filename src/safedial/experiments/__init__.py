"""The paper's experiments. A new one is a file here and a line in `EXPERIMENTS`."""

from safedial.experiments import battery, epsilon, nonlinear, synthetic, table1, theory
from safedial.experiments.experiment import Experiment

EXPERIMENTS: list[Experiment] = [
    table1.EXPERIMENT,
    synthetic.EXPERIMENT,
    theory.EXPERIMENT,
    epsilon.EXPERIMENT,
    nonlinear.EXPERIMENT,
    battery.EXPERIMENT,
]
"""In the order of the report."""
