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

from collections.abc import Iterator
from typing import ClassVar

from ...frozen import dataclass
from ..problem import CudaProblem
from .plan import Over, Work
from .tensor_cores import COLUMNS, ROWS, SIDE_BY_SIDE, block_of, has_instructions

LEAST_EDGES = 1 << 20
LEAST_WEIGHTED = 32
MOST_STORED = 8
# Part of what BSR stores that SR-BCRS has to save to be taken.
LEAST_SAVED = 1 / 10
# Sums that products of blocks are, of features of columns, times numbers of edges and of columns (the gradient of a
# mean).
IN_BLOCKS = frozenset(
    f"{reduce}:{places}"
    for reduce in ("sum", "mean")
    for places in ("column", "column,column", "column,edge", "column,column,edge")
)


@dataclass(frozen=True)
class BlockPlan(Over, strategy="blocks"):
    """Blocks on Tensor Cores where a call can take them, the rest where it cannot."""

    meanings: ClassVar = {"blocks on Tensor Cores": "the matrix lies in dense blocks"}

    @property
    def partitions(self) -> int:  # type: ignore[override]
        return self.rest.partitions

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        if not problem.slots:
            return self.rest.work(problem)
        gathers = problem.slots / ROWS
        turns = gathers / max(problem.rows, 1)
        return Work(1, gathers, gathers * problem.features, turns, problem.slots * (problem.itemsize + 1.0))

    def __str__(self) -> str:
        return f"blocks on Tensor Cores, else {self.rest}"

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        yield on_blocks(problem)
        yield (
            "The rest is for calls that blocks do not take: "
            "weights that differ by feature, or full precision of float32."
        )
        yield from self.rest.reasons(problem)


def may_fill_blocks(problem: CudaProblem) -> bool:
    """Whether the operator goes by blocks on Tensor Cores if the graph fills them."""
    return problem.kind in IN_BLOCKS and not refusal_of_blocks(problem)


def refusal_of_blocks(problem: CudaProblem) -> str:
    """Why an operator of ``IN_BLOCKS`` does not go by blocks, whatever the graph makes of them, in words; "" where it
    may.
    """
    return refusal(problem.nnz, problem.features, problem.dtype, problem.arch, "," in problem.kind)


def refusal(edges: int, features: int, dtype: str, arch: str, weighted: bool = False) -> str:
    """Why it is not worth looking at the blocks of a graph, in words; "" where it is.

    features: of a row, and of one head where there are several. weighted: non-zeros have numbers.
    """
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


def on_blocks(problem: CudaProblem) -> str:
    """Whether an operator of ``IN_BLOCKS`` goes by blocks on Tensor Cores, in which format, and why."""
    refused = refusal_of_blocks(problem) or ("" if problem.slots else _unfilled(problem))
    if refused:
        return f"Not by blocks on Tensor Cores: {refused}."
    rows, columns = block_of(problem.dtype)
    stored, saved = problem.slots / problem.nnz, 1 - problem.in_sr_bcrs / problem.in_bsr
    if problem.slots == problem.in_bsr:
        name = "BSR"
        why = (
            f"SR-BCRS, without the columns of a block that none of its {rows} rows has, would save {saved:.1%} of "
            f"them. It would have to save more than {LEAST_SAVED:.0%}, for it reads an index for each column."
        )
    else:
        name = "SR-BCRS"
        in_bsr = problem.in_bsr / problem.nnz
        why = f"BSR, with the columns between those that {rows} rows have, would store {in_bsr:.1f} for each"
        why += (
            f", of which SR-BCRS saves {saved:.1%}: more than {LEAST_SAVED:.0%}, which pays for an index for each "
            f"column."
            if saved > LEAST_SAVED
            else f", more than {MOST_STORED}."
        )
    return (
        f"Tensor Cores multiply blocks of {rows} x {columns} in the format {name}. It stores {problem.slots:,} "
        f"elements, of which "
        f"{1 / stored:.1%} are non-zeros: {stored:.1f} for each non-zero, {MOST_STORED} at most. {why}"
    )


def _unfilled(problem: CudaProblem) -> str:
    """Why the blocks of a graph are not taken, of an operator that looks at them."""
    if problem.in_sr_bcrs > most_slots(problem.nnz):
        return (
            f"SR-BCRS would store {problem.in_sr_bcrs / problem.nnz:.1f} elements for each non-zero, more than "
            f"{MOST_STORED}, and BSR never stores fewer"
        )
    if problem.in_sr_bcrs:
        return "edges repeat, and the weights of those that share an element would be added up in no fixed order"
    if problem.dtype == "float32":
        return (
            "they take ten bits of the fraction of a float32, and PyTorch is set to use them all; "
            "torch.set_float32_matmul_precision('high') allows it"
        )
    return "it was not counted what they would store"
