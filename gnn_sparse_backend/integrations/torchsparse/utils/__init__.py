"""Quantisation, batches, caches, and numbers for each axis."""

from .shapes import make_divisible, make_ntuple, make_tensor
from .to_dense import to_dense

__all__ = ["make_divisible", "make_ntuple", "make_tensor", "to_dense"]
