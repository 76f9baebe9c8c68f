"""The formats of this package, registered as a user's are: a rule, and what finds its indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..bsr import BlockFormat, BsrFormat
from ..dbsr import DbsrFormat
from ..dia import DiaFormat
from ..ell import EllFormat
from ..hyb import HybBucket, HybFormat
from ..sr_bcrs import SrBcrsFormat
from .indices import Indices, NonZeros
from .n_of_m import check_nm, infer_nm, rule_nm
from .registry import register

# rules are imported where one is made: a process that makes none starts without the compiler
if TYPE_CHECKING:
    from ...compiler.transforms.rewrite_rule import FormatRewriteRule

MOST_BLOCK = 256
"""Longest side of a block: a kernel is compiled for each shape."""
MOST_EXPONENT = 8
"""Largest k of hyb(c, k): a bucket is no wider than a block."""
MOST_BUCKETS = 32
"""Buckets of a hyb(c, k), c * (k + 1): a kernel has a loop for each."""

A = ("A",)


def _block(height: int, width: int | None = None) -> tuple[int, ...]:
    """Sides of a block, of which one number is both."""
    return _sides(height, height if width is None else width)


def _sides(*numbers: int) -> tuple[int, ...]:
    if any(not 1 <= number <= MOST_BLOCK for number in numbers):
        raise ValueError(f"sides and widths lie between 1 and {MOST_BLOCK}")
    return numbers


def _buckets(partitions: int, exponent: int) -> tuple[int, ...]:
    if partitions < 1 or exponent > MOST_EXPONENT or partitions * (exponent + 1) > MOST_BUCKETS:
        raise ValueError(
            "hyb(c, k) cuts columns into c >= 1 and has buckets of 1 to 2 ** k, k <= "
            f"{MOST_EXPONENT}; of these at most {MOST_BUCKETS} in all, got {partitions} times {exponent + 1}"
        )
    return partitions, exponent


def rule_bsr(height: int, width: int | None = None) -> FormatRewriteRule:
    from ...compiler.transforms.block_rules import bsr_rule
    from ...compiler.transforms.rule_shape import matrix

    return bsr_rule(matrix(), _pair(height, width), buffers=A, by_columns=True)


def rule_dbsr(height: int, width: int | None = None) -> FormatRewriteRule:
    from ...compiler.transforms.block_rules import dbsr_rule
    from ...compiler.transforms.rule_shape import matrix

    return dbsr_rule(matrix(), _pair(height, width), buffers=A, by_columns=True)


def _pair(height: int, width: int | None) -> tuple[int, int]:
    return height, height if width is None else width


def _in_blocks(
    matrix: NonZeros, height: int, width: int, kind: type[BsrFormat] | type[DbsrFormat]
) -> tuple[BsrFormat | DbsrFormat, Tensor | None]:
    """(the blocks of the grid that are full enough, what they take)"""
    taken = None
    if not matrix.last:
        keys = matrix.rows // height * -(-matrix.shape[1] // width) + matrix.columns // width
        taken = matrix.full(keys, matrix.fill * height * width)
    return kind.from_csr(*matrix.those(taken).csr, (height, width), check=False), taken


def by_columns(form: BlockFormat) -> Tensor:
    """(nnz,) the slot of each non-zero where blocks are stored column by column."""
    height, width = form.block
    slots = form.slots.long()
    block, row, column = slots // (height * width), slots // width % height, slots % width
    return (block * width + column) * height + row


def infer_bsr(matrix: NonZeros, height: int, width: int | None = None) -> Indices:
    height, width = _pair(height, width)
    form, taken = _in_blocks(matrix, height, width, BsrFormat)
    sizes = {"mb": -(-matrix.shape[0] // height), "nb": -(-matrix.shape[1] // width), "nnzb": form.num_blocks}
    return Indices(sizes | {"indptr": form.indptr, "indices": form.indices}, by_columns(form), taken)


def infer_dbsr(matrix: NonZeros, height: int, width: int | None = None) -> Indices:
    height, width = _pair(height, width)
    form, taken = _in_blocks(matrix, height, width, DbsrFormat)
    sizes = {"stored": form.rows.numel(), "nb": -(-matrix.shape[1] // width), "nnzb": form.num_blocks}
    arrays = {"indptr": form.indptr, "indices": form.indices, "Rows": form.rows}
    return Indices(sizes | arrays, by_columns(form), taken)


def rule_sr_bcrs(height: int, group: int) -> FormatRewriteRule:
    from ...compiler.transforms.block_rules import sr_bcrs_rule
    from ...compiler.transforms.rule_shape import matrix

    return sr_bcrs_rule(matrix(), (height, group), buffers=A, by_columns=True)


def infer_sr_bcrs(matrix: NonZeros, height: int, group: int) -> Indices:
    taken = None
    if not matrix.last:
        taken = matrix.full(matrix.rows // height * matrix.shape[1] + matrix.columns, matrix.fill * height)
    form = SrBcrsFormat.from_csr(*matrix.those(taken).csr, (height, group), check=False)
    sizes = {"tiles": -(-matrix.shape[0] // height), "groups": form.num_groups}
    return Indices(sizes | {"indptr": form.indptr, "Columns": form.indices}, by_columns(form), taken)


def rule_dia() -> FormatRewriteRule:
    from ...compiler.transforms.block_rules import dia_rule
    from ...compiler.transforms.rule_shape import matrix

    return dia_rule(matrix(), buffers=A)


def infer_dia(matrix: NonZeros) -> Indices:
    taken, shape = None, matrix.shape
    if not matrix.last:
        offset = matrix.columns - matrix.rows
        above, below = shape[0] + offset.clamp(max=0), shape[1] - offset.clamp(min=0)
        longest = torch.minimum(above, below).clamp(max=min(shape))
        taken = matrix.full(offset + shape[0], matrix.fill * longest)
    form = DiaFormat.from_csr(*matrix.those(taken).csr, check=False)
    return Indices({"diagonals": form.num_diagonals, "Offsets": form.offsets}, form.slots.long(), taken)


def rule_ell(width: int) -> FormatRewriteRule:
    from ...compiler.transforms.format_rules import ell_rule
    from ...compiler.transforms.rule_shape import matrix

    return ell_rule(matrix(), width, buffers=A, own_rows=False)


def infer_ell(matrix: NonZeros, width: int) -> Indices:
    taken = None
    if not matrix.last:
        found = matrix.sharing(matrix.rows)
        taken = (found >= matrix.fill * width) & (found <= width)
    form = EllFormat.from_csr(*matrix.those(taken).csr, width)
    return Indices({"indices": form.indices}, _slots(form.value_position), taken)


def _slots(position: Tensor) -> Tensor:
    """(nnz,) the slot of each non-zero, of the non-zero at each slot, -1 for none."""
    position = position.reshape(-1)
    real = (position >= 0).nonzero().reshape(-1)
    return torch.empty_like(real).index_copy_(0, position.index_select(0, real).long(), real)


def rule_csr() -> FormatRewriteRule:
    from ...compiler.transforms.format_rules import csr_rule
    from ...compiler.transforms.rule_shape import matrix

    return csr_rule(matrix(), name="csr", buffers=A)


def infer_csr(matrix: NonZeros) -> Indices:
    indptr, indices, _ = matrix.csr
    arrays = {"nnz": matrix.nnz, "indptr": indptr, "indices": indices}
    return Indices(arrays, torch.arange(matrix.nnz, device=indices.device))


def rule_bucket(width: int) -> FormatRewriteRule:
    from ...compiler.transforms.format_rules import hyb_bucket_rule
    from ...compiler.transforms.rule_shape import matrix

    return hyb_bucket_rule(matrix(), width, name="bucket", tasks=None, buffers=A)


def infer_hyb(matrix: NonZeros, partitions: int, exponent: int) -> list[Indices]:
    form = HybFormat.from_csr(*matrix.csr, partitions, exponent, check=False)
    return [_bucket(bucket) for bucket in form.buckets]


def infer_coo(matrix: NonZeros) -> list[Indices]:
    return infer_hyb(matrix, 1, 0)


def _bucket(bucket: HybBucket) -> Indices:
    position = bucket.value_position.reshape(-1)
    slots = (position >= 0).nonzero().reshape(-1)
    taken = position.index_select(0, slots).long()
    arrays = {"count": bucket.num_rows, "Rows": bucket.row_indices, "indices": bucket.indices}
    return Indices(arrays, slots, taken, ("bucket", (bucket.width,)))


_blocks: dict[str, Any] = {"check": _block, "transposed": lambda *numbers: numbers[::-1]}
register("bsr", rule_bsr, infer_bsr, example="bsr(32), bsr(16, 8)", **_blocks)
register("dbsr", rule_dbsr, infer_dbsr, example="dbsr(32)", begins="bsr", **_blocks)
register("sr_bcrs", rule_sr_bcrs, infer_sr_bcrs, example="sr_bcrs(8, 4)", check=_sides)
register("nm", rule_nm, infer_nm, example="nm(2, 4)", check=check_nm)
register("dia", rule_dia, infer_dia)
register("ell", rule_ell, infer_ell, example="ell(4)", check=_sides)
register("hyb", None, infer_hyb, example="hyb(1, 3)", check=_buckets)
register("bucket", rule_bucket, None, example="bucket(4)")
register("csr", rule_csr, infer_csr)
register("coo", None, infer_coo)
