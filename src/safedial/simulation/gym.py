"""The linear world as a Gymnasium environment: one round is one step, the cost is in `info["cost"]`.

    observation   the context x                    action    the dial, Box(0, 1)
    reward        R = g_r(α)(⟨x,θ*⟩ + ξ)           info      cost, violated, intensity, threshold

An episode is `rounds` rounds with one θ*, μ*; it is truncated at its end, never terminated. `reset(seed=…)` fixes all
randomness. Needs the `gym` extra.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from safedial.errors import require
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.spec import CONSTANTS, NUMBERS, SafetySpec
from safedial.simulation.world import NOISY, Array, Exposure, World, generators


class SafeDialEnv(gymnasium.Env[Array, Array]):
    """Turn the dial for each context; `info["cost"]` must stay at or below `spec.threshold`.

    Args:
        world: a world with iid contexts.
        spec: its constants and the threshold.
        rounds: the length of an episode.
        dose: the dose curves; the identity by default.

    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.02, reward_noise=1, cost_noise=1, coefficient_bound=1,
    ...                   context_bound=1)
    >>> env = SafeDialEnv(LinearWorld(dim=3), spec, rounds=10)
    >>> context, _ = env.reset(seed=0)
    >>> context, reward, terminated, truncated, info = env.step(np.array([0.2]))
    >>> sorted(info)
    ['cost', 'intensity', 'threshold', 'violated']
    """

    metadata = {"render_modes": []}  # noqa: RUF012 -- Gymnasium's own attribute

    def __init__(
        self, world: World, spec: SafetySpec, *, rounds: int = 1000, dose: DoseCurve | Dose | None = None
    ) -> None:
        require(isinstance(world, World), "world", world, "must be a world of safedial.simulation, or your own")
        require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
        require(isinstance(rounds, int) and rounds >= 1, "rounds", rounds, "must be a whole number >= 1")
        require(not world.adversarial, "contexts", world.contexts, "must be 'iid': an adversary must see a learner")
        for name in NUMBERS:
            require(np.ndim(getattr(spec, name)) == 0, name, getattr(spec, name), "must be one number")
        for name in CONSTANTS:
            require(getattr(spec, name) is not None, name, None, "is needed: the world is made from it")
        self.world, self.safety, self.rounds, self.dose = world, spec, rounds, as_dose(dose)
        self._round = rounds
        bound = spec.context_bound
        self.observation_space = Box(-bound, bound, (world.dim,), np.float64)
        self.action_space = Box(0.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draw a new θ*, μ* and a new sequence of rounds."""
        super().reset(seed=seed)
        rngs = generators([int(self.np_random.integers(2**63)) if seed is None else seed])
        self._truth: Any = self.world.draw_truth(self.safety, rngs)
        self._draws = self.world.draw_chunk(self.safety, rngs, self.rounds + 1)
        self._round = 0
        return self._context(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one round at `action` in [0, 1]."""
        require(self._round < self.rounds, "step", self._round, "has no round to play", "call reset first")
        setting = np.asarray(action, dtype=float).ravel()
        valid = setting.shape == (1,) and bool(np.all((setting >= 0.0) & (setting <= 1.0)))
        require(valid, "action", action, "must be one number in [0, 1]")
        index, context, alpha = self._round, self._context(), float(setting[0])
        harm = float(self.dose.cost.effect(alpha))
        means = self.world.means(self.safety, self._truth, context[None, None])
        gain, load = (np.full((1, 1), curve.effect(alpha)) for curve in self.dose)
        noise = (getattr(self._draws, name)[None, index] for name in NOISY)
        outcome = self.world.outcome(self.safety, Exposure(context[None, None], *means, gain, load, *noise))
        reward, cost, true = (float(each[0, 0]) for each in outcome)
        self._round += 1
        limit = self.safety.threshold
        over = (cost if self.safety.threshold_on == "measured" else true) > limit
        info = {"cost": cost, "violated": over, "intensity": harm, "threshold": limit}
        return self._context(), reward, False, self._round >= self.rounds, info

    def _context(self) -> Array:
        return self._draws.context[min(self._round, self.rounds), 0].copy()


gymnasium.register(id="safedial/Linear-v0", entry_point="safedial.simulation.gym:SafeDialEnv")
