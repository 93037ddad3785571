"""`simulate` in JAX: the rounds of a chunk as one compiled scan, on a CPU or a GPU.

The rule of a round is that of `simulation.rule`. NumPy's worlds are drawn in bulk, a chunk ahead, and sent to the
device; results then agree with the NumPy engine's up to rounding. Or every number is made on the device from (seed,
round, place) by a counter-based generator (`simulation.counter`): other worlds of the same law.

Shapes are fixed, so one program serves every chunk; rounds after the last one are played and not counted. The spec's
numbers are arguments of the program, so that one program serves all specs of the same form.

Double precision is enabled only for the call, in a context, never in the global configuration.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from safedial.core import estimate
from safedial.core.estimate import Estimate, Prediction
from safedial.core.namespace import is_zero
from safedial.core.spec import NUMBERS, SafetySpec
from safedial.core.tighter_radii import PLAIN, Learner
from safedial.errors import InvalidInput, import_extra, require
from safedial.jax_device import device_named, x64
from safedial.policies import POLICIES, make_policy
from safedial.simulation import counter
from safedial.simulation.loop import Batch, Setting
from safedial.simulation.rule import CURVES, Rule, Step, exceeded
from safedial.worlds.world import NOISY, Draws, Exposure

jax = import_extra("jax", "jax")
jnp = import_extra("jax.numpy", "jax")

BYTES = {"cpu": 64 << 20, "gpu": 4 << 30}
"""The size of a chunk's random numbers."""

LONGEST = 4096
"""Rounds in a chunk, at most."""

KERNEL = 64
"""The largest d for which a GPU has the fused kernel (`simulation.fused_rounds`)."""

WAY_OUT = "use engine='numpy'"

Program = Callable[..., Any]
PROGRAMS: dict[Any, Program] = {}
"""Compiled programs, by what they depend on."""


class Plan(NamedTuple):
    """What a compiled program depends on besides the rule."""

    step: int
    marks: int
    counter: bool
    dtype: str
    form: str
    """"scan" with seeds on the last axis, "general" for other learners, or "kernel", on a GPU, and "interpret", which
    runs the kernel's code without one.
    """


class JaxBatch(Batch):
    """A `Batch` whose chunks are played and scored by a compiled program."""

    engine = "jax"

    def __init__(
        self, setting: Setting, *, device: str | None, draws: str, dtype: str = "float64", form: str = "auto"
    ) -> None:
        self.counted, self.device, self.dtype, self.form = draws == "counter", device_named(device), dtype, form
        super().__init__(setting)
        rounds, seeds = setting.rounds, setting.seeds
        self._refuse()
        size = BYTES["cpu" if self.device.platform == "cpu" else "gpu"] // (8 * (self.world.dim + 6) * len(seeds))
        self.step = -(-rounds // -(-rounds // min(LONGEST, max(1, size))))
        marks = max(len(self.marks(start, self.step)) for start in range(0, rounds, self.step))
        self.plan = Plan(self.step, marks, self.counted, dtype, self.form)
        with self._session():
            put = partial(jnp.asarray, dtype=dtype)
            self.fixed: dict[str, Any] = {"rounds": np.int64(rounds), "numbers": jax.tree.map(put, _numbers(self.spec))}
            if self.counted:
                self.fixed["seeds"] = tuple(jnp.asarray(half) for half in counter.halves(seeds))
                self.fixed["truth"] = jax.tree.map(put, self.truth)
            self.totals = {name: jnp.asarray(each) for name, each in self.totals.items()}
        self.finite: Any = None
        self.compile()

    def start(self) -> Any:
        """The state, made on the device in the layout of the program's form."""
        plain, rows, on_gpu = self.rule.learner == PLAIN, len(self.totals["regret"]), self.device.platform != "cpu"
        fits = plain and rows == 1 and self.world.dim <= KERNEL
        if self.form == "auto":
            self.form = "kernel" if fits and on_gpu else "scan" if plain else "general"
        if self.form == "scan":
            self.rule = self.rule._replace(learner=seeds_last(self.world.dim))
        with self._session():
            made = super().start() if self.form == "general" else None
            if made is None:
                init = seeds_last(self.world.dim).init if self.form == "scan" else partial(estimate.init, xp=jnp)
                made = init(self.world.dim, ridge=self.spec.ridge, batch=(self.batch, len(self.seeds)))
            return jax.tree.map(partial(jnp.array, dtype=self.dtype), made)

    def draw_truth(self) -> Any:
        if not self.counted:
            return super().draw_truth()
        reason = counter.why_not(self.world, self.spec)
        require(not reason, "draws", "counter", f"do not go with this world: {reason}", "use draws='numpy'")
        return counter.draw_truth(self.world, self.spec, counter.halves(self.seeds))

    def _refuse(self) -> None:
        """Refuse what a compiled program cannot do."""
        for name, callback in (("observe", self.setting.observe), ("record", self.setting.record)):
            require(callback is None, name, callback, "is not for engine 'jax', which does not stop to call", WAY_OUT)
        require(self.spec.costs is None, "costs", list(self.spec.costs or ()), "are not for engine 'jax'", WAY_OUT)
        contexts = self.world.contexts
        require(not self.world.adversarial, "contexts", contexts, "are not for engine 'jax'", WAY_OUT)

    def compile(self) -> None:
        """Compile the program, or refuse a policy or a world that is not made of pure functions of arrays."""
        started = time.perf_counter()
        given = None if self.plan.counter else self._shapes()
        marks = np.ones(self.plan.marks, dtype=np.int64)
        arguments = (self.state, self.totals), self.fixed, (np.int64(0), marks, given)
        with self._session():
            self.program = _compiled(self.rule, self.plan, arguments)
        self.compile_seconds = time.perf_counter() - started

    def draw(self, step: int) -> Draws | None:
        return None if self.counted else super().draw(step)

    def chunk(self, done: int, draws: Any) -> None:
        wanted = self.marks(done, self.step)
        marks = np.pad(wanted, (0, self.plan.marks - len(wanted)), constant_values=1)
        given = None if draws is None else self._given(draws)
        with self._session():
            carry, curves, finite = self.program((self.state, self.totals), self.fixed, (np.int64(done), marks, given))
        self.state, self.totals = carry
        for name, values in curves.items():
            self.curves[name].append(values[: len(wanted)])
        self._check_finite()  # of the chunk before: the host is one chunk ahead of the device
        self.finite = finite

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Double precision on the chosen device; what goes wrong there is explained."""
        with x64(True), jax.default_device(self.device):
            try:
                yield
            except Exception as error:  # what a compiler may raise is not written down anywhere
                said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
                if "RESOURCE_EXHAUSTED" in said or "ut of memory" in said:
                    raise InvalidInput(f"seeds: do not fit into the memory of {self.device}; use fewer") from error
                name = self.policy.name
                raise InvalidInput(f"engine = 'jax': cannot compile {name} ({said}); {WAY_OUT}") from error

    @cached_property
    def silent(self) -> set[str]:
        """What is 0 in every round, or not needed, and so is left out."""
        streams = ((stream, stream.replace("sensor", "sensor_noise")) for stream in NOISY)
        silent = {stream for stream, name in streams if is_zero(getattr(self.spec, name))}
        coin = set() if self.policy.randomised or "coin" in self.rule.asked.update else {"coin"}
        return silent | coin | {"reward_intensity", "cost_intensity"}

    def _given(self, draws: Draws) -> dict[str, Any]:
        """A chunk of NumPy's world, filled up with rounds of zeros."""
        missing = self.step - len(draws.coin)
        if missing:
            draws = Draws(*(np.concatenate([part, np.zeros((missing, *part.shape[1:]))]) for part in draws))
        given = self._exposure(draws)._asdict() | {"coin": draws.coin[:, None]}
        return {name: np.asarray(part, self.plan.dtype) for name, part in given.items() if name not in self.silent}

    def _shapes(self) -> dict[str, Any]:
        """The shapes of what `_given` gives."""
        each = (self.step, 1, len(self.seeds))
        shapes = dict.fromkeys((*Exposure._fields, "coin"), each) | {"context": (*each, self.world.dim)}
        kept = {name: shape for name, shape in shapes.items() if name not in self.silent}
        return {name: jax.ShapeDtypeStruct(shape, self.plan.dtype) for name, shape in kept.items()}

    def _check_finite(self) -> None:
        whole = self.finite is None or bool(self.finite)
        require(whole, "dose", self.dose.to_dict(), "gave costs that are not finite")

    def results(self) -> dict[str, Any]:
        self._check_finite()
        self.totals = {name: np.asarray(each, dtype=float) for name, each in self.totals.items()}
        return super().results()


def seeds_last(dim: int) -> Learner:
    """The linear learner of `core.estimate` with the batch as the last axes: contexts (d, ...), Σ⁻¹ (d, d, ...).

    Sums over d are then sums of whole vectors of seeds, which a compiler turns into vector instructions; many small
    matrix products it does not.
    """

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...]) -> Estimate:
        inverse = jnp.eye(dim).reshape(dim, dim, *(1 for _ in batch)) / ridge * jnp.ones(batch)
        return Estimate(inverse, *(jnp.zeros((dim, *batch)) for _ in range(2)), *(jnp.zeros(batch) for _ in range(2)))

    def predict(state: Estimate, context: Any) -> Prediction:
        direction = jnp.sum(state.inverse * context, axis=1)
        squared = jnp.sum(context * direction, axis=0)
        return Prediction(
            reward=jnp.sum(context * state.reward_coef, axis=0),
            cost=jnp.sum(context * state.cost_coef, axis=0),
            width=jnp.sqrt(jnp.maximum(squared, 0.0)),
            norm=jnp.sqrt(jnp.sum(context * context, axis=0)),
            log_det=state.log_det,
            informative_rounds=state.informative_rounds,
            dim=dim,
            direction=direction,
        )

    def update(state: Estimate, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Estimate:
        squared = seen.width * seen.width
        scaled = weight / (1.0 + weight * squared) * seen.direction
        return Estimate(
            state.inverse - scaled[:, None] * seen.direction,
            state.reward_coef + scaled * (reward - seen.reward),
            state.cost_coef + scaled * (cost - seen.cost),
            state.log_det + jnp.log1p(weight * squared),
            state.informative_rounds + jnp.where(weight > 0.0, 1.0, 0.0),
        )

    return Learner(init, predict, update)


ARGUMENTS = (*(name for name in NUMBERS if name != "violation_risk"), "log_inverse_risk", "tail", "least_informative")


def _numbers(spec: SafetySpec) -> dict[str, Any]:
    """The numbers of a spec that are arguments of a program. What is None or 0 is left out: it shapes the program; and
    so is the risk of a round: the exact clairvoyant needs a quantile, which SciPy computes.
    """
    given = {name: getattr(spec, name) for name in ARGUMENTS}
    return {name: value for name, value in given.items() if not (value is None or is_zero(value))}


def _compiled(rule: Rule, plan: Plan, arguments: tuple[Any, ...]) -> Program:
    """The program for these arguments, compiled once for each form of the rule; your own policies and worlds, whose
    form is not known, compile anew.
    """
    make = jax.jit(partial(_play, rule, plan), donate_argnums=0).lower
    if not _known(rule):
        return make(*arguments).compile()
    # Only the scan of the plain learner takes the spec's numbers as arguments; elsewhere they are part of the program.
    passed = arguments[1]["numbers"] if plan.form == "scan" else ()
    fixed = {name: _exactly(value) for name, value in vars(rule.spec).items() if name not in passed}
    shapes = jax.tree.map(lambda part: (part.shape, str(part.dtype)), arguments)
    device = str(jax.config.jax_default_device)
    key = repr((device, rule.policy.name, rule.policy.options, rule.world.to_dict(), rule.dose.to_dict()))
    key += repr((fixed, rule.batch, plan, shapes))
    if key not in PROGRAMS:
        PROGRAMS[key] = make(*arguments).compile()
    return PROGRAMS[key]


def _known(rule: Rule) -> bool:
    """Whether names and options determine the rule: nothing in it is the user's own."""
    policy, own = rule.policy, rule.world.is_own or rule.spec.noise_scale is not None
    if own or policy.name not in POLICIES or any(curve.is_own for curve in (rule.dose.reward, rule.dose.cost)):
        return False
    plain: Any = make_policy(policy.name, **policy.options).decide
    return getattr(policy.decide, "__code__", None) is plain.__code__


def _exactly(value: Any) -> Any:
    """A value whose text tells it from every other; that of a NumPy array leaves out digits and places."""
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def _play(rule: Rule, plan: Plan, carry: Any, fixed: dict[str, Any], chunk: Any) -> tuple[Any, Any, Any]:
    """A chunk: ((state, totals), totals at the marks, whether all costs are finite)."""
    (state, totals), (done, marks, given) = carry, chunk
    spec = copy.copy(rule.spec)
    for name, value in fixed["numbers"].items() if plan.form == "scan" else ():
        object.__setattr__(spec, name, value)
    rule = rule._replace(spec=spec)
    at = done + 1 + jnp.arange(plan.step)
    numbers = at.astype(plan.dtype)
    if plan.counter:
        given = counter.draw_rounds(rule.world, spec, fixed["truth"], fixed["seeds"], at)
    rounds = Exposure(**{name: given.get(name, 0.0) for name in Exposure._fields})
    shape = totals["regret"].shape
    moving = dict(given) | ({"context": jnp.moveaxis(given["context"], -1, 1)} if plan.form == "scan" else {})

    def advance(state: Any, given: Any) -> tuple[Any, Any]:
        number, given = given
        now, coin = Exposure(**{name: given.get(name, 0.0) for name in Exposure._fields}), given.get("coin", 0.0)
        prediction, choice = rule.decide(state, number, now, coin)
        state, step = rule.learn(state, now, prediction, choice, coin)
        flags = sum((1 << place) * part for place, part in enumerate(step[2:]))
        # One array comes out of a round: for one seed, every further one would take as long as the round itself.
        return state, jnp.stack([jnp.broadcast_to(part, shape) for part in (choice.intensity, flags)])

    if plan.form in ("scan", "general"):
        state, told = jax.lax.scan(advance, state, (numbers, moving))
    else:
        from safedial.simulation import fused_rounds

        state, told = fused_rounds.play(rule, state, numbers, given, interpret=plan.form == "interpret")
    intensity, flags = told[:, 0], told[:, 1].astype(np.int32)
    harm, gain = rule.applied(intensity)
    steps = Step(gain, harm, *(flags & (1 << place) > 0 for place in range(3)))
    rounds = rounds._replace(reward_intensity=gain, cost_intensity=harm)
    outcome = rule.world.outcome(spec, rounds)
    cost = outcome.cost if spec.threshold_on == "measured" else outcome.true_cost
    values = rule.score(numbers[:, None, None], rounds, cost, steps)
    counted = (at <= fixed["rounds"])[:, None, None]
    # The sums up to every mark, and up to the end, are a product with zeros and ones: running sums are slow in XLA.
    upto = (jnp.arange(plan.step) < jnp.append(marks, plan.step)[:, None]).astype(jnp.float64)
    curves = {}
    for name, value in values.items():
        value = jnp.where(counted, value, 0.0).astype(jnp.float64)
        if name in CURVES:
            curves[name] = totals[name] + jnp.tensordot(upto, jnp.broadcast_to(value, (plan.step, *shape)), 1)
            totals = totals | {name: curves[name][-1]}
        else:
            totals = totals | {name: totals[name] + jnp.sum(value, axis=0)}
    return (state, totals), curves, exceeded(spec, cost)[1]
