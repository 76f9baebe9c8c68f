"""Stage I to stage II: from coordinates to positions, one pass a file."""

from .emit import lower

__all__ = ["lower"]
