"""Simulated rounds: `simulate` runs a policy in a world for many seeds and specs at once."""

from safedial.simulation.run import Simulation, simulate

__all__ = ["Simulation", "simulate"]
