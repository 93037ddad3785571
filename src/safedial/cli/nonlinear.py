"""The worlds and function classes of `safedial simulate`, from their names on the command line."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

from safedial.cli.inputs import read_named
from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput, require
from safedial.function_classes import CLASSES, FunctionClass
from safedial.function_classes.maps import fourier, splines
from safedial.own_names import imported
from safedial.worlds import LinearWorld, World, world_from_dict
from safedial.worlds.nonlinear import DOSE, KINDS, waves

DOSE_RESPONSE = "dose-response"
WORLDS = ("linear", *KINDS, DOSE_RESPONSE)
MAPS = "fourier:COUNT[,LENGTH] or splines:KNOTS"
OWN_CLASS = {"finite": "finite", "kernel": "kernel", "logistic": "binary", "dose-toxicity": "kernel"}


class Shape(NamedTuple):
    """The command line's options for non-linear worlds and classes."""

    functions: int
    kernel: str
    norm: float
    odds: float
    features: str
    misspecification: float
    max_points: int
    radius: str | None


def make_world(text: str, dim: int | None, noise: str, shape: Shape, linear: dict[str, Any]) -> World:
    """A world by its name, which may bring fields: `name,field=value`. Only the linear world accepts the options in
    `linear`.
    """
    fields = read_named(text, "--world")
    name = fields.pop("name")
    if ":" not in name:
        require(name in WORLDS, "--world", name, "must be one of " + ", ".join(WORLDS), "or your own, module:factory")
        require(dim is not None, "--dim", dim, "is missing", "give it, or a spec file with a [world] table")
        fields = {"dim": dim} | fields
    if name == "linear":
        return world_from_dict({"noise": noise} | linear | fields)
    for option, value in linear.items():
        default = LinearWorld.__dataclass_fields__[option].default
        require(value == default, f"--{option.replace('_', '-')}", value, f"is not an option of the world {name}")
    if name in KINDS:
        parts = {"functions": shape.functions, "kernel": shape.kernel, "norm": shape.norm, "odds": shape.odds}
        return world_from_dict({"kind": name, "noise": noise, **parts} | fields)
    way_out = "it has tails=t2" if name == DOSE_RESPONSE else "write the fields of your world after its name"
    require(noise == "gaussian", "--noise", noise, f"is not an option of the world {name}", way_out)
    return (
        world_from_dict({"curve": "power"} | fields)
        if name == DOSE_RESPONSE
        else own_world({"name": name} | fields, dim)
    )


def own_world(fields: dict[str, Any], dim: int | None) -> World:
    """Your own world by its name and fields; `dim` is one of them if it takes that, and must be its own if not."""
    takes = dim is not None and "dim" in signature(imported(fields["name"], "--world")).parameters
    made = world_from_dict(({"dim": dim} if takes else {}) | fields)
    rule = f"is not the dimension of the world {fields['name']}, {made.dim}"
    require(dim is None or dim == made.dim, "--dim", dim, rule, "leave it out")
    return made


def make_classes(cost: str | None, reward: str | None, *, world: str, dim: int, spec: SafetySpec, shape: Shape) -> Any:
    """The two classes by their names. By default both are the class of the world."""
    name = cost or OWN_CLASS.get(world, "linear")
    chosen = _class(name, "--class", dim, spec, shape)
    if reward is None or reward == name:
        return {"cost_class": chosen}
    return {"cost_class": chosen, "reward_class": _class(reward, "--reward-class", dim, spec, shape)}


def default_dose(world: str) -> str:
    """The default dose curve of a world."""
    return DOSE if world == "dose-toxicity" else "identity"


def _class(name: str, option: str, dim: int, spec: SafetySpec, shape: Shape) -> FunctionClass:
    require(name in CLASSES, option, name, "must be one of " + ", ".join(CLASSES))
    with_radius = name in ("linear", "finite", "features") or shape.radius is None or option != "--class"
    require(with_radius, "--radius", shape.radius, f"is not an option of the class {name}", "leave it out")
    radius = {} if shape.radius is None else {"radius": shape.radius}
    if name == "linear":
        return CLASSES[name](**radius)
    if name == "finite":
        return CLASSES[name](waves(dim, shape.functions), **radius)
    if name == "kernel":
        return CLASSES[name](shape.kernel, norm=shape.norm, max_points=shape.max_points)
    if name == "features":
        return CLASSES[name](_map(shape.features, dim), misspecification=shape.misspecification, **radius)
    return CLASSES[name](norm=spec.coefficient_bound, odds=shape.odds)


def _map(text: str, dim: int) -> Any:
    name, _, rest = text.partition(":")
    try:
        numbers = [float(part) for part in rest.split(",") if part]
        if name == "fourier" and len(numbers) in (1, 2):
            return fourier(dim, count=int(numbers[0]), length=[*numbers, 0.5][1])
        if name == "splines" and len(numbers) == 1:
            return splines(dim, knots=int(numbers[0]))
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"--features = {text!r}: {error}; write {MAPS}") from error
    raise InvalidInput(f"--features = {text!r}: must be {MAPS}")
