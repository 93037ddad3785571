"""Random numbers from counters, made on the device: each is a function of (seed, round, place).

So a seed's world is the same in any batch of seeds, chunk of rounds and device. The generator is Threefry-2x32 with 20
rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), its key the seed and its
counter (round, place); round 0 holds the truth. Noise comes from the family's quantile function.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from safedial.errors import import_extra
from safedial.model.namespace import is_zero
from safedial.model.spec import SafetySpec
from safedial.simulation.linear_world import DRIFT, LinearWorld, Truth
from safedial.simulation.world import CUT, NOISY, Exposure, World, deviation

jax = import_extra("jax", "jax")
jnp = import_extra("jax.numpy", "jax")
ndtri = import_extra("jax.scipy.special", "jax").ndtri

PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two random uint32 for every (key, counter), arrays of uint32 that broadcast."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(PARITY))
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            left = left + right
            right = (right << np.uint32(turn)) | (right >> np.uint32(32 - turn))
            right = right ^ left
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + np.uint32(group + 1)
    return left, right


def halves(seeds: list[int]) -> tuple[Any, Any]:
    """The low and the high 32 bits of every seed."""
    whole = np.array(seeds, dtype=np.uint64)
    return whole.astype(np.uint32), (whole >> np.uint64(32)).astype(np.uint32)


def uniforms(seeds: Any, rounds: Any, places: Any, dtype: Any) -> Any:
    """Numbers in (0, 1), 0 and 1 never; the arguments broadcast. Seeds are (low, high) halves."""
    left, right = threefry(seeds, (rounds, places))
    if np.dtype(dtype) == np.float32:
        return ((left >> np.uint32(9)).astype(dtype) + 0.5) * 2.0**-23
    return ((left >> np.uint32(6)).astype(dtype) * 2.0**26 + (right >> np.uint32(6)).astype(dtype) + 0.5) * 2.0**-52


def normals(seeds: Any, rounds: Any, places: Any, dtype: Any) -> tuple[Any, Any]:
    """Two independent standard normal numbers for every place (Box and Muller 1958), from 32 bits each: none lies
    beyond 6.8, where one in 10^11 would.
    """
    left, right = (bits.astype(dtype) + 0.5 for bits in threefry(seeds, (rounds, places)))
    length = jnp.sqrt(-2.0 * jnp.log(left * 2.0**-32))
    angle = right * (math.tau * 2.0**-32)
    return length * jnp.cos(angle), length * jnp.sin(angle)


def noise(family: str, uniform: Any) -> Any:
    """Numbers of a family of `simulation.world`, by its quantile function."""
    if family == "uniform":
        return (2.0 * uniform - 1.0) * math.sqrt(3.0)
    if family == "rademacher":
        return jnp.where(uniform > 0.5, 1.0, -1.0)
    if family == "truncated":
        within = math.erf(CUT / math.sqrt(2.0))
        return math.sqrt(2.0) * jax.lax.erf_inv(within * (2.0 * uniform - 1.0)) / deviation()
    return -jnp.log1p(-uniform) - 1.0


def why_not(world: World, spec: SafetySpec) -> str:
    """Why a world's random numbers cannot be made on the device; empty if they can."""
    if not isinstance(world, LinearWorld) or world.is_own:
        return "only LinearWorld has numbers from counters"
    if world.adversarial:
        return "an adversary's contexts answer to the learner"
    return "Student's t has no quantile function in JAX" if world.noise == "student-t3" else ""


def draw_truth(world: World, spec: SafetySpec, seeds: Any) -> Truth:
    """θ* and μ*, uniform on the sphere of radius S, (seeds, d), made on the device in double precision."""
    reward, cost = _directions(*seeds, dim=world.dim)
    return Truth(spec.coefficient_bound * reward, spec.coefficient_bound * cost)


@partial(jax.jit, static_argnames="dim")
def _directions(low: Any, high: Any, *, dim: int) -> tuple[Any, Any]:
    places = np.arange(2 * dim, dtype=np.uint32)
    drawn = ndtri(uniforms((low[:, None], high[:, None]), np.uint32(0), places, np.float64)).reshape(-1, 2, dim)
    drawn = drawn / jnp.linalg.norm(drawn, axis=-1, keepdims=True)
    return drawn[:, 0], drawn[:, 1]


def draw_rounds(world: World, spec: SafetySpec, truth: Truth, seeds: Any, numbers: Any) -> dict[str, Any]:
    """The rounds of these numbers, before their decisions: the fields of an `Exposure` that are not 0, and `coin`.

    Axes are (round, row, seed), or (round, place, row, seed): with seeds last, a program reads whole vectors of them.
    """
    dtype, pairs, family = truth.reward_coef.dtype, -(-world.dim // 2), world.noise
    at = numbers.astype(np.uint32)[:, None, None]
    places = np.arange(pairs, dtype=np.uint32)[:, None, None]
    vectors = jnp.concatenate(normals(seeds, at[:, None], places, dtype), axis=1)[:, : world.dim]
    if world.contexts == "drift":
        vectors = vectors.at[:, 0].multiply((numbers / DRIFT)[:, None, None])
    length = jnp.sqrt(jnp.sum(vectors * vectors, axis=1, keepdims=True))
    context = jnp.moveaxis(vectors * (spec.context_bound * (1.0 - jnp.finfo(dtype).eps) / length), 1, -1)
    found = dict(zip(Exposure._fields[:3], (context, *world.means(spec, truth, context)), strict=True))
    scale, free = world.noise_scale(spec, context), pairs
    for pair in (NOISY[:2], NOISY[2:]):
        both = None
        for stream in pair:
            size, free = getattr(spec, stream.replace("sensor", "sensor_noise")), free + 1
            if is_zero(size):
                continue
            if family in ("gaussian", "context-scale"):
                both = normals(seeds, at, np.uint32(free - 1), dtype) if both is None else both[1:]
                made = both[0]
            else:
                made = noise(family, uniforms(seeds, at, np.uint32(free - 1), dtype))
            found[stream] = made * size * (1.0 if stream.endswith("sensor") else scale)
    return found | {"coin": uniforms(seeds, at, np.uint32(free), dtype)}
