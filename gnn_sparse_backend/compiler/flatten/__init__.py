"""Stage II to stage III: sparse buffers become plain arrays."""

from .flatten import flatten

__all__ = ["flatten"]
