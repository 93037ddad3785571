"""JAX's devices and precision, for the engines that use it."""

from __future__ import annotations

from typing import Any

from safedial.errors import import_extra, require

jax = import_extra("jax", "jax")


def x64(wanted: bool) -> Any:
    """A context with or without double precision in JAX, whatever the global configuration."""
    switch = getattr(jax, "enable_x64", None)
    if switch is None:
        from jax.experimental import enable_x64 as switch  # pyright: ignore
    return switch(wanted)


def device_named(name: str | None) -> Any:
    """JAX's first device of this kind; None: its default."""
    require(name in (None, "cpu", "gpu"), "device", name, "must be 'cpu' or 'gpu'", "leave it out for JAX's default")
    if name is None:
        return jax.devices()[0]
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        require(False, "device", name, f"is not one that JAX sees ({jax.default_backend()} only)", "leave it out")
        raise


def triton(warps: int) -> Any:
    """The compiler parameters that choose Triton, under the name this JAX has for them."""
    try:
        from jax.experimental.pallas import triton as backend
    except ImportError:  # up to 0.4.34
        from jax.experimental.pallas import gpu as backend  # pyright: ignore

    parameters = getattr(backend, "CompilerParams", None) or backend.TritonCompilerParams  # pyright: ignore
    return parameters(num_warps=warps, num_stages=1)
