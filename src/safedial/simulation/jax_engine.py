"""`simulate` in JAX: the rounds of a chunk as one compiled scan, on a CPU or a GPU.

The rule of a round is that of `simulation.rule`. NumPy's worlds are drawn in bulk, a chunk ahead, and sent to the
device; results then agree with the NumPy engine's up to rounding. Or every number is made on the device from (seed,
round, place) by a counter-based generator (`simulation.counter`): other worlds of the same law.

Shapes are fixed, so one program serves every chunk; rounds after the last one are played and not counted. The spec's
numbers are arguments of the program, so that one program serves all specs of the same form.

Double precision is enabled only for the call, in a context, never in the global configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from traceback import walk_tb
from typing import Any

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.confidence import multipliers
from safedial.errors import InvalidInput, import_extra, require
from safedial.model.costs import require_one_cost
from safedial.model.namespace import is_zero
from safedial.model.noise_scale import NoiseScale
from safedial.model.spec import NUMBERS, SafetySpec
from safedial.policies.estimates import needs_more
from safedial.policies.policy import check_intensities
from safedial.simulation import counter, jax_rounds
from safedial.simulation.fused_rounds import in_layout
from safedial.simulation.jax_device import device_named, x64
from safedial.simulation.jax_rounds import Plan, play
from safedial.simulation.linear_world import CANDIDATES, DataWorld, LinearWorld
from safedial.simulation.loop import Batch, Played, Setting
from safedial.simulation.rule import CURVES, Rule
from safedial.simulation.world import NOISY, Draws, Exposure, World

jax = import_extra("jax", "jax")
jnp = import_extra("jax.numpy", "jax")

BYTES = {"cpu": 32 << 20, "gpu": 4 << 30}
"""The size of a chunk's random numbers."""

CACHE = 128 << 10
"""The bytes of Σ⁻¹ of a block of seeds on a CPU, whose cache is to hold them from round to round."""

VECTOR = 16
"""The seeds of a block are a multiple of it, so that whole vectors are read."""

LONGEST = 4096
"""Rounds in a chunk, at most."""

KERNEL = 64
"""The largest d for which a GPU has the fused kernel (`simulation.fused_rounds`)."""

WAY_OUT = "use engine='numpy'"

Program = Callable[..., Any]
PROGRAMS: dict[Any, Program] = {}
"""Compiled programs, by what they depend on."""


class Block:
    """Some of the seeds, which a call of the program plays: what is theirs and stays, and what moves."""

    def __init__(self, where: slice, fixed: dict[str, Any], carry: Any) -> None:
        self.where, self.fixed, self.carry = where, fixed, carry


class JaxBatch(Batch):
    """A `Batch` whose chunks are played and scored by a compiled program, block by block of seeds."""

    engine = "jax"

    def __init__(
        self, setting: Setting, *, device: str | None, draws: str, dtype: str = "float64", form: str = "auto"
    ) -> None:
        self.counted, self.device, self.dtype, self.form = draws == "counter", device_named(device), dtype, form
        super().__init__(setting)
        rounds, seeds = setting.rounds, setting.seeds
        size = BYTES["cpu" if self.device.platform == "cpu" else "gpu"] // (8 * (self.world.dim + 6) * len(seeds))
        self.step = -(-rounds // -(-rounds // min(LONGEST, max(1, size))))
        marks = max(len(self.marks(start, self.step)) for start in range(0, rounds, self.step))
        self.plan = Plan(self.step, marks, self.counted, dtype, self.form, setting.record is not None)
        self.blocks = self._blocks()
        self.unread: Callable[[], None] = lambda: None
        self.compile()

    def start(self) -> Any:
        """The state of a block of seeds, made on the device in the layout of the program's form."""
        self._refuse()
        rows, on_gpu, seeds = len(self.totals["regret"]), self.device.platform != "cpu", len(self.seeds)
        policy, stated = self.policy, self.rule.stated
        radius = policy.options.get("radius")
        plain = not needs_more(radius, stated)
        odd = self.world.adversarial or stated.noise_scale is not None or stated.margin != "subgaussian"
        fits = plain and rows == 1 and self.world.dim <= KERNEL and not odd
        if self.form == "auto":
            scanned = plain or radius == "self-normalised"
            self.form = "kernel" if fits and on_gpu else "scan" if scanned else "general"
        self.size, scan = seeds, self.form == "scan"
        if scan and not on_gpu:
            matrices = self.batch * (1 if plain else 1 + len(multipliers(stated)))
            blocks = -(-seeds * matrices * 8 * self.world.dim**2 // CACHE)
            self.size = min(seeds, VECTOR * -(-seeds // (blocks * VECTOR)))
        with self._session():
            made = super().start().sums if self.form == "general" else None
            if made is None:
                init = in_layout(policy, self.world.dim, stated).init if scan else partial(estimate.init, xp=jnp)
                made = init(self.world.dim, ridge=stated.ridge, batch=(self.batch, self.size))
            return jax.tree.map(partial(jnp.array, dtype=self.dtype), made)

    def _blocks(self) -> list[Block]:
        """The seeds before their first round. All blocks have one size: the last may repeat seeds of the one before."""
        put, made = partial(jnp.asarray, dtype=self.dtype), []
        with self._session():
            numbers = _numbers(self.spec), _numbers(self.rule.stated), _margin(self.world, self.spec)
            always = {"rounds": np.int64(self.setting.rounds), "numbers": jax.tree.map(put, numbers)}
            whole, truth = self.size == len(self.seeds), self.truth if self.counted or self.world.adversarial else ()
            state = self.state if whole else jax.tree.map(np.asarray, self.state)  # each block gets buffers of its own
            for start in range(0, len(self.seeds), self.size):
                first = min(start, len(self.seeds) - self.size)
                where = slice(first, first + self.size)
                fixed = always | {"truth": jax.tree.map(lambda part, where=where: put(part[where]), truth)}
                fixed |= {"seeds": counter.halves(self.seeds[where])} if self.counted else {}
                totals = {name: each[:, where] for name, each in self.totals.items()}
                made.append(Block(where, *jax.device_put((fixed, (state, totals)))))
        return made

    def draw_truth(self) -> Any:
        if not self.counted:
            return super().draw_truth()
        reason = counter.why_not(self.world, self.spec)
        require(not reason, "draws", "counter", f"do not go with this world: {reason}", "use draws='numpy'")
        with self._session():
            return counter.draw_truth(self.world, self.spec, counter.halves(self.seeds))

    def _refuse(self) -> None:
        """Refuse what a compiled program cannot do."""
        watched, spec = self.setting.observe, self.spec
        require(watched is None, "observe", watched, "is not for engine 'jax', which does not stop to call", WAY_OUT)
        require_one_cost(spec, "are not for engine 'jax'", WAY_OUT)
        rule = "keeps every round and looks back at them, which engine 'jax' cannot"
        require(not self.rule.stated.learns_noise, "margin", spec.margin, rule, WAY_OUT)
        rule, scale = "of your own are checked in each round, which engine 'jax' cannot", spec.noise_scale
        require(scale is None or not scale.is_own, "noise_scale", scale, rule, WAY_OUT)
        own, contexts = self.world.is_own and self.world.adversarial, self.world.contexts
        require(not own, "contexts", contexts, "of your own are not for it", WAY_OUT)

    def compile(self) -> None:
        """Compile the program, or refuse a policy or a world that is not made of pure functions of arrays."""
        started, first = time.perf_counter(), self.blocks[0]
        chunk = np.int64(0), np.ones(self.plan.marks, dtype=np.int64), None if self.counted else self._shapes()
        with self._session():
            self.program = _compiled(self.rule, self.plan, (first.carry, first.fixed, chunk))
        self.compile_seconds = time.perf_counter() - started

    def draw(self, step: int) -> Draws | None:
        return None if self.counted else super().draw(step)

    def chunk(self, done: int, draws: Any) -> None:
        wanted, found = self.marks(done, self.step), []
        marks = np.pad(wanted, (0, self.plan.marks - len(wanted)), constant_values=1)
        given = {} if draws is None else self._given(draws)
        with self._session():
            for block in self.blocks:
                shown = {name: self._shown(name, part[:, :, block.where]) for name, part in given.items()}
                block.carry, *rest = self.program(block.carry, block.fixed, (np.int64(done), marks, shown or None))
                found.append(rest)
        self.unread()  # the chunk before: the host is one chunk ahead of the device
        self.unread = lambda: self._read(done, len(wanted), draws, found)

    def _read(self, done: int, marks: int, draws: Any, found: list[Any]) -> None:
        """Read what every block has found in a chunk."""
        curves, finite, intensities, told = zip(*found, strict=True)
        for lowest, highest in intensities:
            check_intensities(self.policy.name, lowest, highest)
        self.require_finite(all(map(bool, finite)))
        for name in CURVES:
            self.curves[name].append(self._joined([each[name] for each in curves], 2)[:marks])
        if self.setting.record:
            contexts, *rest = zip(*told, strict=True)
            context = draws.context[:, None] if contexts[0] is None else self._joined(contexts, 2)
            intensity, reward, cost = (self._joined(part, 2) for part in rest)
            played = context, self.dose.cost.action(intensity), reward, cost
            self.setting.record(Played(*(part[: self.setting.rounds - done] for part in played)))

    def _joined(self, parts: Any, axis: int) -> Any:
        """The arrays of the blocks as one, along their axis of seeds."""
        if len(parts) == 1:
            return np.asarray(parts[0])
        shape = list(parts[0].shape)
        shape[axis] = len(self.seeds)
        whole = np.empty(shape)
        for block, part in zip(self.blocks, parts, strict=True):
            whole[(slice(None),) * axis + (block.where,)] = part
        return whole

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Double precision on the chosen device; what goes wrong there is explained."""
        with x64(True), jax.default_device(self.device):
            try:
                yield
            except InvalidInput:
                raise
            except Exception as error:  # what a compiler may raise is not written down anywhere
                said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
                if "RESOURCE_EXHAUSTED" in said or "ut of memory" in said:
                    raise InvalidInput(f"seeds: do not fit into the memory of {self.device}; use fewer") from error
                within = any(isinstance(frame.f_locals.get("self"), World) for frame, _ in walk_tb(error.__traceback__))
                name = f"the world {self.world.name}" if within else self.policy.name
                way_out = f"{WAY_OUT}, or the functions of its arrays' `namespace` in place of np, SciPy and `if`"
                raise InvalidInput(f"engine = 'jax': cannot compile {name} ({said}); {way_out}") from error

    @cached_property
    def silent(self) -> set[str]:
        """What is 0 in every round, or not needed, and so is left out."""
        streams = ((stream, stream.replace("sensor", "sensor_noise")) for stream in NOISY)
        silent = {stream for stream, name in streams if is_zero(getattr(self.spec, name))}
        coin = set() if self.policy.randomised else {"coin"}
        sent = {"reward_mean", "cost_mean"} if self.world.adversarial else set()
        scale = set() if isinstance(self.world, DataWorld) and self.world.scaled else {"noise_scale"}
        return silent | coin | sent | scale | {"reward_intensity", "cost_intensity"}

    def _given(self, draws: Draws) -> dict[str, Any]:
        """A chunk of NumPy's world, filled up with rounds of zeros."""
        missing = self.step - len(draws.coin)
        if missing:
            draws = Draws(*(np.concatenate([part, np.zeros((missing, *part.shape[1:]))]) for part in draws))
        given = self._exposure(draws)._asdict() | {"coin": draws.coin[:, None]}
        if "noise_scale" not in self.silent:
            given["noise_scale"] = np.asarray(self.world.noise_scale(self.spec, draws.context))[:, None]
        if self.world.adversarial:
            given["context"] = draws.context[:, None]
        return {name: np.asarray(part, self.plan.dtype) for name, part in given.items() if name not in self.silent}

    @cached_property
    def turned(self) -> bool:
        """Whether contexts go to the device as the scan reads them, (rounds, d, row, seeds)."""
        return self.form == "scan" and not self.world.adversarial

    def _shown(self, name: str, part: Any) -> Any:
        return np.moveaxis(part, -1, 1) if self.turned and name == "context" else part

    def _shapes(self) -> dict[str, Any]:
        """The shapes of what a program is given of a chunk."""
        each, dim = (self.step, 1, self.size), self.world.dim
        context = (*each, *((CANDIDATES,) if self.world.adversarial else ()), dim)
        context = (self.step, dim, *each[1:]) if self.turned else context
        shapes = dict.fromkeys((*Exposure._fields, "coin", "noise_scale"), each) | {"context": context}
        kept = {name: shape for name, shape in shapes.items() if name not in self.silent}
        return {name: jax.ShapeDtypeStruct(shape, self.plan.dtype) for name, shape in kept.items()}

    def stop_at(self, done: int) -> None:
        self._finish()
        super().stop_at(done)

    def results(self) -> dict[str, Any]:
        self._finish()
        return super().results()

    def _finish(self) -> None:
        """Read what the last chunk has found, and the totals."""
        self.unread()
        self.unread, self.state = lambda: None, self.blocks[0].carry[0]
        self.totals = {name: self._joined([each.carry[1][name] for each in self.blocks], 1) for name in self.totals}
        self.require_finite(np.isfinite(self.totals["reward"]).all())


ARGUMENTS = (*(name for name in NUMBERS if name != "violation_risk"), "log_inverse_risk", "tail", "least_informative")


def _numbers(spec: SafetySpec) -> dict[str, Any]:
    """The numbers of a spec that are arguments of a program. What is None or 0 is left out: it shapes the program; and
    so is the risk of a round: the exact clairvoyant needs a quantile, which SciPy computes. With another margin than
    the sub-Gaussian one there are none: the clairvoyant, who has that one, makes a spec anew from plain numbers.
    """
    if spec.margin != "subgaussian":
        return {}
    given = {name: getattr(spec, name) for name in ARGUMENTS}
    return {name: value for name, value in given.items() if not (value is None or is_zero(value))}


def _margin(world: World, spec: SafetySpec) -> dict[str, Any]:
    """The number of a world of the package that is an argument of a program: what its noise rarely exceeds."""
    linear = isinstance(world, LinearWorld) and not world.is_own
    return {"exact_margin": world.exact_margin(spec)} if linear and spec.margin == "subgaussian" else {}


def _compiled(rule: Rule, plan: Plan, arguments: tuple[Any, ...]) -> Program:
    """The program for these arguments, compiled once for each form of the rule; your own policies and worlds, whose
    form is not known, compile anew.
    """
    make = jax.jit(partial(play, rule, plan), donate_argnums=0).lower
    if not _known(rule):
        return make(*arguments).compile()
    *passed, margin = arguments[1]["numbers"] if plan.form in jax_rounds.PASSED else ((), (), ())
    specs = zip((rule.spec, rule.stated), passed, strict=True)
    fixed = [{name: _exactly(vars(spec)[name]) for name in vars(spec) if name not in given} for spec, given in specs]
    shapes = jax.tree.map(lambda part: (part.shape, str(part.dtype)), arguments)
    device = str(jax.config.jax_default_device)
    world = rule.world.to_dict()
    if margin and not plan.counter:  # what else shapes the noise, the contexts and the means is NumPy's
        world |= {"noise": world["noise"] == "context-scale", "contexts": rule.world.adversarial}
        world |= {} if rule.world.adversarial else {"mean": ""}
    key = repr((device, rule.policy.name, rule.policy.options, type(rule.world), world, rule.dose.to_dict()))
    key += repr((fixed, rule.batch, plan, shapes))
    if key not in PROGRAMS:
        PROGRAMS[key] = make(*arguments).compile()
    return PROGRAMS[key]


def _known(rule: Rule) -> bool:
    """Whether names and options determine the rule: nothing in it is the user's own."""
    own = rule.world.is_own or any(curve.is_own for curve in (rule.dose.reward, rule.dose.cost))
    return not (own or rule.policy.is_own)


def _exactly(value: Any) -> Any:
    """A value whose text tells it from every other; that of a NumPy array leaves out digits and places."""
    if isinstance(value, NoiseScale):
        return value.to_dict()
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
