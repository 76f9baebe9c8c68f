"""Formats of tensors by levels, after Chou, Kjolstad and Amarasinghe (OOPSLA 2018).

A tensor is stored as a tree of coordinates, one level for each mode in the order of the format. A level says how the
coordinates under one element of the level above are stored:

    dense                  all of them, without an index
    compressed             those that have elements, ascending, each once: offsets and coordinates (CSR's columns)
    compressed-nonunique   the same, where a coordinate may repeat: one element for each (COO's first mode)
    singleton              exactly one: coordinates alone (COO's other modes)
    slots                  equally many, free slots with the coordinate -1 (ELL's columns)

Blocks and diagonals are levels too, of coordinates that follow from those of the tensor: of bsr(b) a matrix has the
four coordinates i // b, j // b, i % b and j % b, of dia the two j - i and i. In such a format a mask tells the elements
of a dense level that are stored from those that fill it up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...frozen import dataclass
from ..errors import FormatError
from .values import integer, integers

KINDS = ("dense", "compressed", "compressed-nonunique", "singleton", "slots")


@dataclass(frozen=True)
class Format:
    """How a tensor is stored.

    Args:
        levels: the kind of each level, outermost first: "dense", "compressed", "compressed-nonunique", "singleton" or
            "slots".
        order: the mode that each level stores; the first level the first mode, and so on, if None. CSC is CSR of the
            order (1, 0).
        block: the sides of the blocks of bsr; None of any other format.
        diagonals: levels of a matrix are its diagonals j - i, and the rows i.

    Raises FormatError where levels cannot stand in this order.
    """

    levels: tuple[str, ...]
    order: tuple[int, ...] | None = None
    block: tuple[int, int] | None = None
    diagonals: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.levels, (str, tuple, list)):
            raise FormatError(f"levels {self.levels!r:.60} are not the kind of each level, several in a tuple")
        levels = (self.levels,) if isinstance(self.levels, str) else tuple(self.levels)
        object.__setattr__(self, "levels", levels)
        for kind in levels:
            if kind not in KINDS:
                raise FormatError(f"level {kind!r} is not one of {', '.join(map(repr, KINDS))}")
        if isinstance(self.order, str):
            raise FormatError(f"order {self.order!r} is not the mode of each level; levels stand in one tuple")
        order = tuple(range(self.modes)) if self.order is None else integers(self.order, "order")
        object.__setattr__(self, "order", order)
        if sorted(order) != list(range(self.modes)):
            raise FormatError(
                f"order {order} of a format of {self.modes} modes must have each of 0 to {self.modes - 1} once"
            )
        sides = None if self.block is None else integers(self.block, "block")
        if sides is not None and (len(levels) != 4 or len(sides) != 2 or min(sides) < 1 or self.diagonals):
            raise FormatError(f"block {self.block} wants two positive sides and four levels, not {', '.join(levels)}")
        if self.diagonals and len(levels) != 2:
            raise FormatError(f"diagonals are of matrices, with two levels, not {len(levels)}")
        for at, kind in enumerate(levels):
            above = levels[at - 1] if at else None
            if kind == "singleton" and above not in ("singleton", "compressed-nonunique"):
                raise FormatError(
                    f"level {at} of {', '.join(levels)}: a singleton stands under compressed-nonunique or a singleton"
                )
            if above in ("compressed-nonunique", "singleton") and kind != "singleton":
                raise FormatError(
                    f"level {at} of {', '.join(levels)}: under {above} stand singletons alone, as coordinates repeat"
                )

    @property
    def modes(self) -> int:
        """The number of modes of the tensors that are stored so."""
        return 2 if self.block is not None or self.diagonals else len(self.levels)

    @property
    def modes_in_order(self) -> tuple[int, ...]:
        """The mode of each level, of formats without blocks and diagonals."""
        assert self.order is not None
        return self.order

    @property
    def masked(self) -> bool:
        """Whether a mask tells what is stored: of blocks and diagonals."""
        return self.block is not None or self.diagonals

    @property
    def is_dense(self) -> bool:
        """Whether every element is stored, in an array that NumPy knows."""
        return set(self.levels) <= {"dense"} and not self.masked

    @property
    def exact(self) -> bool:
        """Whether what is stored tells an element that is zero from one that is not there."""
        return self.masked or (bool(self.levels) and self.levels[-1] != "dense")

    def permuted(self, modes: Sequence[int]) -> Format:
        """The format of the tensor whose mode n is mode modes[n] of this one's, stored as it is."""
        found = {old: new for new, old in enumerate(modes)}
        order = tuple(found[mode] for mode in self.modes_in_order)
        block = None if self.block is None else (self.block[modes[0]], self.block[modes[1]])
        return Format(self.levels, order, block, self.diagonals)

    def __str__(self) -> str:
        for name, known in NAMED.items():
            if self == known:
                return name
        if self.block is not None and self == bsr(self.block):
            return f"bsr({self.block[0]}, {self.block[1]})"
        if self.levels and self == coo(len(self.levels)):
            return "coo"
        if len(self.levels) > 2 and self == csf(len(self.levels)):
            return "csf"
        if self == dense(len(self.levels)):
            return "dense"
        order = "" if self.order == tuple(range(self.modes)) else f", order={self.order}"
        what = f", block={self.block}" if self.block else ", diagonals" if self.diagonals else ""
        return f"Format({', '.join(self.levels)}{order}{what})"


def _count(modes: int) -> int:
    """A number of modes of which there is at least one."""
    found = integer(modes)
    if found is None or found < 1:
        raise FormatError(f"a format of {modes!r:.60} modes is none; give their number, 1 or more")
    return found


def dense(modes: int) -> Format:
    """Every element, in the order of the modes: an ordinary array."""
    return Format(("dense",) * modes)


def coo(modes: int = 2) -> Format:
    """A coordinate of each mode for every element."""
    return Format(("compressed-nonunique", *("singleton",) * (_count(modes) - 1)))


def csf(modes: int = 3) -> Format:
    """Compressed sparse fibres (Smith and Karypis, 2015): every level compressed."""
    return Format(("compressed",) * _count(modes))


def bsr(block: int | tuple[int, int]) -> Format:
    """Block CSR: dense blocks of a matrix, of `block` rows and columns (or a pair), in rows of blocks."""
    side = integer(block)
    sides = integers(block, "block") if side is None else (side, side)
    if len(sides) != 2:
        raise FormatError(f"blocks of bsr have two sides, not {block!r}")
    return Format(("dense", "compressed", "dense", "dense"), None, sides)


csr = Format(("dense", "compressed"))
csc = Format(("dense", "compressed"), (1, 0))
dcsr = Format(("compressed", "compressed"))
ell = Format(("dense", "slots"))
dia = Format(("compressed", "dense"), diagonals=True)
NAMED = {"csr": csr, "csc": csc, "dcsr": dcsr, "ell": ell, "dia": dia}


def as_format(given: object, modes: int) -> Format:
    """The Format that is given, or whose name is given, for a tensor of `modes` modes.

    Names: "dense", "csr", "csc", "coo", "dcsr", "csf", "ell", "dia", "bsr(4)", "bsr(2, 3)". Raises FormatError.
    """
    found = given
    if isinstance(given, str):
        name = given.strip()
        blocks = re.fullmatch(r"bsr\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", name)
        if blocks:
            found = bsr((int(blocks[1]), int(blocks[2] or blocks[1])))
        elif name in ("dense", "coo", "csf"):
            found = {"dense": dense, "coo": coo, "csf": csf}[name](modes) if modes or name == "dense" else None
        elif name in NAMED:
            found = NAMED[name]
        elif name == "bsr":
            raise FormatError(f"format {given!r} has blocks of a size: write 'bsr(4)', or 'bsr(2, 3)' for 2 x 3")
        else:
            raise FormatError(
                f"format {given!r} is not known; there are dense, coo, csf, bsr(4), {', '.join(NAMED)} and Format"
            )
    elif isinstance(given, (tuple, list)):
        found = Format(tuple(given))
    if not isinstance(found, Format):
        raise FormatError(
            f"{given!r} is not a format of tensors with {modes} modes; give a Format or a name such as 'csr'"
        )
    if found.modes != modes:
        raise FormatError(f"format {found} is of tensors with {found.modes} modes, and this one has {modes}")
    return found
