"""The plan of sums and means over locally dense graphs on a GPU: BSR or SR-BCRS, multiplied by Tensor Cores.

A row of the graph costs a gather for each of its non-zeros. Sixteen rows in blocks cost one for each column of their
blocks, which all of them share: with s stored elements for each non-zero, s / 16 gathers for one. What else is read is
the elements, 16 for each column, and where columns are. Rules, not measured on a GPU yet:

- The graph has a million edges (`LEAST_EDGES`), since blocks take a sort of them, once: that is for graphs that stay.
- Rows have 8 features, a tile, or more. Where non-zeros have numbers, rows have 32 or more for each of them
  (`LEAST_WEIGHTED`): the numbers are laid out in blocks at every call, which moves 8 s bytes for each non-zero of 16
  bits.
- s is 8 at most (`MOST_STORED`): half of the gathers and less. It bounds the memory as well. Else CSR.
- SR-BCRS stores the columns that the rows of a tile have, BSR also those between them, so SR-BCRS never stores more.
  But BSR reads an index for each block and SR-BCRS one for each column, before it can load the column's row; and the
  rows that a block of BSR meets are one stretch of memory. An index is 4 bytes beside 16 elements and 16 to 512 bytes
  of a row. So BSR is taken where it stores a ninth more at most (`LEAST_SAVED`), as where neighbours are numbered one
  after the other.
"""

from __future__ import annotations

from .tensor_cores import COLUMNS, SIDE_BY_SIDE, has_instructions

LEAST_EDGES = 1 << 20
LEAST_WEIGHTED = 32
MOST_STORED = 8
# Part of what BSR stores that SR-BCRS has to save to be taken.
LEAST_SAVED = 1 / 10


def may_pay(edges: int, features: int, dtype: str, arch: str, weighted: bool = False) -> bool:
    """Whether it is worth looking at the blocks of a graph. features: of a row, and of one head where there are
    several.
    weighted: non-zeros have numbers."""
    return not refusal(edges, features, dtype, arch, weighted)


def refusal(edges: int, features: int, dtype: str, arch: str, weighted: bool = False) -> str:
    """Why not, in words; "" where it is worth it. Arguments as of `may_pay`."""
    least = LEAST_WEIGHTED if weighted else COLUMNS
    if dtype not in SIDE_BY_SIDE:
        return f"they take {', '.join(SIDE_BY_SIDE)}, not {dtype}"
    if not has_instructions(arch):
        return f"{arch} has not got their instructions"
    if edges < LEAST_EDGES:
        return f"{edges:,} edges are fewer than {LEAST_EDGES:,}, from which on it pays to sort them into blocks"
    if features < least:
        return f"{features} features are fewer than {least}, " + (
            "from which on it pays to lay out numbers in blocks" if weighted else "the width of a tile"
        )
    return ""


def most_slots(edges: int) -> int:
    """Elements that the blocks of a graph may store."""
    return MOST_STORED * edges


def most_in_bsr(edges: int, listed: int) -> int:
    """Elements that BSR may store to be taken, where SR-BCRS stores ``listed``."""
    return min(most_slots(edges), int(listed / (1 - LEAST_SAVED)))
