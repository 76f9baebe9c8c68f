"""The pieces of a decomposition as rules: program and spec to program, whatever the formats are."""

from __future__ import annotations

from dataclasses import dataclass

from ....compiler.language.axes import StageIError
from ....compiler.language.program import Program
from ....compiler.transforms.block_rules import bsr_rule, dbsr_rule, dia_rule, sr_bcrs_rule
from ....compiler.transforms.decompose import decompose_format
from ....compiler.transforms.format_rules import csr_rule, ell_rule, hyb_bucket_rule
from ....compiler.transforms.rewrite_rule import FormatRewriteRule
from ....formats.composed.spec import FormatSpec

BLOCKS = ("bsr", "dbsr")
"""Formats of which rows and columns stand side by side: what is accumulated for several rows shares what it loads."""


@dataclass(frozen=True)
class ComposedSpec:
    """What is static in a product of a composed matrix and a dense one.

    pieces: formats, in order. dtype: of values and operands. result: of the results. tile: columns that are accumulated
    together. masked: padding is skipped, as operands that may be infinite want it, and not multiplied as zeros. grid:
    matrices of the batch and tiles of columns are a dimension of a GPU's grid. bias: rows begin with a number each.
    turned: what goes by slices is transposed in squares, and not row by row.
    """

    pieces: tuple[FormatSpec, ...]
    dtype: str = "float32"
    result: str = "float32"
    index_dtype: str = "int32"
    tile: int = 1
    masked: bool = False
    grid: bool = False
    bias: bool = False
    turned: bool = False


def name_of(number: int) -> str:
    """What the parameters of a piece end in."""
    return f"p{number}"


def composed(program: Program, spec: ComposedSpec, within: str, buffer: str, tasks: str | None) -> Program:
    """The program with its sparse buffer in the formats of the pieces, and nothing that fills them."""
    rules = [_rule(program, piece, number, spec.masked, buffer, tasks) for number, piece in enumerate(spec.pieces)]
    return decompose_format(program, rules, copies=False, within=within)


def _rule(
    program: Program, piece: FormatSpec, number: int, masked: bool, buffer: str, tasks: str | None
) -> FormatRewriteRule:
    name, buffers = name_of(number), (buffer,)
    match piece.kind:
        case "csr":
            return csr_rule(program, name=name, buffers=buffers)
        case "ell":
            return ell_rule(program, piece.numbers[0], name=name, buffers=buffers, own_rows=False)
        case "bucket":
            return hyb_bucket_rule(program, piece.numbers[0], name=name, tasks=tasks, buffers=buffers)
        case "dia":
            return dia_rule(program, name=name, tasks=tasks, buffers=buffers, masked=masked)
        case "bsr" | "dbsr" | "sr_bcrs":
            make = {"bsr": bsr_rule, "dbsr": dbsr_rule, "sr_bcrs": sr_bcrs_rule}[piece.kind]
            return make(program, piece.block, name=name, tasks=tasks, buffers=buffers, masked=masked, by_columns=True)
    raise StageIError(f"there is no program for {piece}")
