"""The formats of a decomposition as words: ``"bsr(32)"``, ``"sr_bcrs(8, 4)"``, ``"dia"``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_BLOCK = 256
"""Longest side of a block: a kernel is compiled for each shape."""

PARAMETERS = {
    "bsr": (1, 2),
    "dbsr": (1, 2),
    "sr_bcrs": (2, 2),
    "dia": (0, 0),
    "ell": (1, 1),
    "hyb": (2, 2),
    "csr": (0, 0),
    "coo": (0, 0),
}
"""The formats, and how few and how many numbers stand behind each."""

MOST_EXPONENT = 8
"""Largest k of hyb(c, k): a bucket is no wider than a block."""
MOST_BUCKETS = 32
"""Buckets of a hyb(c, k), c * (k + 1): a kernel has a loop for each."""

EXAMPLES = "bsr(32), bsr(16, 8), dbsr(32), sr_bcrs(8, 4), dia, ell(4), hyb(1, 3), csr, coo"


@dataclass(frozen=True)
class FormatSpec:
    """One format: its word and its numbers. A block of one number is square.

    ``bucket(width)`` is no word of users: what hyb and coo are made of.
    """

    kind: str
    numbers: tuple[int, ...] = ()

    @property
    def block(self) -> tuple[int, int]:
        """(rows, columns) of what is stored whole: (1, 1) where single non-zeros are."""
        return self.numbers[:2] if self.kind in ("bsr", "dbsr", "sr_bcrs") else (1, 1)  # type: ignore[return-value]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns that a program goes through together, whose multiples operands must have."""
        return (self.block[0], 1) if self.kind == "sr_bcrs" else self.block

    @property
    def names_columns(self) -> bool:
        """Whether each of its values has a column of its own, and padding none: then it is never multiplied."""
        return self.kind in ("csr", "ell", "bucket")

    @property
    def begins_rows(self) -> bool:
        """Whether a program of it visits every row once, so that results may begin with it."""
        return self.kind != "bucket"

    def transposed(self) -> FormatSpec:
        """The format for the transpose."""
        return FormatSpec(self.kind, self.numbers[::-1]) if self.kind in ("bsr", "dbsr") else self

    def __str__(self) -> str:
        numbers = self.numbers[:1] if len(set(self.numbers)) == 1 and self.kind in ("bsr", "dbsr") else self.numbers
        return f"{self.kind}({', '.join(map(str, numbers))})" if numbers else self.kind


def parse_formats(formats: object) -> tuple[FormatSpec, ...]:
    """The formats of a decomposition: words, or one of them. Errors quote what they cannot read."""
    words = [formats] if isinstance(formats, (str, FormatSpec)) else formats
    if not isinstance(words, Sequence) or not words:
        raise TypeError(f'formats must be words such as ["bsr(32)", "csr"], got {formats!r}')
    return tuple(word if isinstance(word, FormatSpec) else parse_format(word) for word in words)


def parse_format(word: object) -> FormatSpec:
    """One format."""
    if not isinstance(word, str):
        raise TypeError(f"a format must be a word such as {EXAMPLES}; got {word!r}")
    found = re.fullmatch(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*", word)
    if found is None or found[1] not in PARAMETERS:
        raise ValueError(f"unknown format {word!r}; formats are {EXAMPLES}")
    kind, (fewest, most) = found[1], PARAMETERS[found[1]]
    texts = [text.strip() for text in found[2].split(",")] if found[2] is not None and found[2].strip() else []
    if not fewest <= len(texts) <= most or not all(re.fullmatch(r"\d{1,9}", text) for text in texts):
        count = str(fewest) if fewest == most else f"{fewest} or {most}"
        raise ValueError(f"format {word!r}: {kind} takes {count} whole numbers, as in {EXAMPLES}")
    numbers = tuple(map(int, texts))
    if kind == "hyb":
        return _hyb(word, *numbers)
    if any(not 1 <= number <= MOST_BLOCK for number in numbers):
        raise ValueError(f"format {word!r}: sides and widths lie between 1 and {MOST_BLOCK}")
    if kind in ("bsr", "dbsr") and len(numbers) == 1:
        numbers *= 2
    return FormatSpec(kind, numbers)


def _hyb(word: str, partitions: int, exponent: int) -> FormatSpec:
    if partitions < 1 or exponent > MOST_EXPONENT or partitions * (exponent + 1) > MOST_BUCKETS:
        raise ValueError(
            f"format {word!r}: hyb(c, k) cuts columns into c >= 1 and has buckets of 1 to 2 ** k, k <= "
            f"{MOST_EXPONENT}; of these at most {MOST_BUCKETS} in all, got {partitions} times {exponent + 1}"
        )
    return FormatSpec("hyb", (partitions, exponent))
