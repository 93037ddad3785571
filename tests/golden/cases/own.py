"""Functions and models of a user's own, which some options take. All are smooth and deterministic."""

from __future__ import annotations

import numpy as np


class Squares:
    """Ridge regression on 1, x and x²."""

    def fit(self, rows, targets):
        full = self.full(rows)
        gram = full.T @ full + 0.5 * np.eye(full.shape[1])
        self.coef = np.linalg.solve(gram, full.T @ np.asarray(targets, dtype=float))
        return self

    def predict(self, rows):
        return self.full(rows) @ self.coef

    @staticmethod
    def full(rows):
        rows = np.asarray(rows, dtype=float)
        return np.concatenate([np.ones((len(rows), 1)), rows, rows * rows], axis=1)


def rising(intensity, context):
    """A noise scale: √(z² + 0.01)·(1 + 0.2·x₁²)."""
    return (intensity * intensity + 0.01) ** 0.5 * (1.0 + 0.2 * context[..., 0] ** 2)


def rising_alone(intensity):
    """The same at a context of 0, by which the world scatters."""
    return (intensity * intensity + 0.01) ** 0.5


def whether_positive(context):
    """A group by the second column's sign."""
    return "high" if context[1] > 0.0 else "low"


def first_column(context):
    """A protocol's setting, of one context."""
    return 0.9 * float(context[0]) + 0.01


def first_columns(contexts):
    """A protocol's setting, of contexts (..., d)."""
    return 0.9 * contexts[..., 0] + 0.01


def sine_waves(contexts):
    """Thirty functions of two coordinates."""
    turns = np.linspace(0.0, np.pi, 30)
    directions = np.stack([np.cos(turns), np.sin(turns)]) * 1.5
    return np.sin(np.asarray(contexts) @ directions)


def with_squares(contexts):
    """x and x²/2 beside each other."""
    contexts = np.asarray(contexts)
    return np.concatenate([contexts, 0.5 * contexts * contexts], axis=-1)
