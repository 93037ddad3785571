"""Pictures, drawn from the written data alone."""

from safedial.plots.battery import draw_battery
from safedial.plots.closed_loop import draw_closed_loop
from safedial.plots.conformal import draw_conformal
from safedial.plots.nonlinear import draw_nonlinear
from safedial.plots.radii_margins_plot import draw_toolkit
from safedial.plots.sweep import draw_sweep
from safedial.plots.synthetic import draw_epsilon, draw_synthetic
from safedial.plots.table1 import draw_table1

__all__ = [
    "draw_battery",
    "draw_closed_loop",
    "draw_conformal",
    "draw_epsilon",
    "draw_nonlinear",
    "draw_sweep",
    "draw_synthetic",
    "draw_table1",
    "draw_toolkit",
]
