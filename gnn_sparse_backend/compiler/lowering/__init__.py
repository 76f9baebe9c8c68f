"""Stage I to stage II, from coordinates to positions, and stage II to stage III, to plain arrays: one pass a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import names_of

if TYPE_CHECKING:
    from .emit import lower
    from .to_arrays import flatten
else:
    __getattr__, __dir__ = names_of(__name__, {".emit": "lower", ".to_arrays": "flatten"})

__all__ = ["flatten", "lower"]
