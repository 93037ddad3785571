"""Growth brackets: how fast a cost can change with the dial, stated from one side, for HP-Shield.

`relative(low, high, floor=…)`: in per cent, for costs that vanish with the dose. `additive(low, high)`: in units of the
cost per unit of the dial, for costs with a baseline. `spread(step, sigma)`: for costs of 0 or 1.

>>> from safedial import growth
>>> trough = growth.relative(0.7, 1.4, floor=2)
>>> round(trough.bound(10.0, 500.0, 550.0), 2)  # 10 mg/l at 500 mg: at 550 mg at most this
11.43
"""

from safedial.core.brackets import Growth, additive, relative, spread

__all__ = ["Growth", "additive", "relative", "spread"]
