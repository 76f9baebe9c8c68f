"""Sparse tensors, and every kind of format that they can be stored in."""

from __future__ import annotations

import numpy as np

MATRIX_FORMATS = (
    "csr",
    "csc",
    "coo",
    "dcsr",
    "csf",
    "ell",
    "dia",
    "bsr(2)",
    "bsr(2, 3)",
    ("compressed", "dense"),
    ("dense", "compressed-nonunique"),
)
CUBE_FORMATS = (
    "csf",
    "coo",
    ("dense", "compressed", "compressed"),
    ("dense", "dense", "compressed"),
    ("compressed", "dense", "compressed"),
    ("compressed", "compressed", "dense"),
    ("dense", "slots", "compressed"),
)


def sparse(*shape: int, seed: int = 0, density: float = 0.4) -> np.ndarray:
    """A float64 array of which most elements are zero."""
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape) * (rng.random(shape) < density)


def dense(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)
