"""Simulated worlds that only the arena and our figures use: meal insulin, and a battery in the loop."""
