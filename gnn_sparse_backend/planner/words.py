"""Numbers in words, as reasons have them."""

from __future__ import annotations


def about(count: int) -> str:
    """A count to two digits."""
    return f"{round(count, min(0, 2 - len(str(count)))):,}"


def size(count: float, digits: int = 3) -> str:
    """A number of bytes, to ``digits`` significant digits, with its unit."""
    unit, scale = next(
        ((unit, scale) for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= scale), ("bytes", 1)
    )
    return f"{float(f'{count / scale:.{digits}g}'):,g} {unit}"
