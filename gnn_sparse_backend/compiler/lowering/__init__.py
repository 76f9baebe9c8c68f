"""Stage I to stage II, from coordinates to positions, and stage II to stage III, to plain arrays: one pass a file."""

from .emit import lower
from .flatten import flatten

__all__ = ["flatten", "lower"]
