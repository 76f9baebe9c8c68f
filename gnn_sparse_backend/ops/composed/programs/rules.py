"""The pieces of a decomposition as rules: program and spec to program, whatever the formats are."""

from __future__ import annotations

from ....compiler.language.program import Program
from ....compiler.transforms.decompose import decompose_format
from ....compiler.transforms.place_rule import base_name, place_rule
from ....formats.composed.spec import FormatSpec
from ....frozen import dataclass


@dataclass(frozen=True)
class ComposedSpec:
    """What is static in a product of a composed matrix and a dense one.

    pieces: formats, in order. dtype: of values and operands. result: of the results. tile: columns that are accumulated
    together. masked: padding is skipped, as operands that may be infinite want it, and not multiplied as zeros. grid:
    matrices of the batch and tiles of columns are a dimension of a GPU's grid. bias: rows begin with a number each.
    turned: what goes by slices is transposed in squares, and not row by row. whole: a tile has all columns. widened:
    the dense operand has the type of the sums.
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
    whole: bool = False
    widened: bool = False


def name_of(number: int) -> str:
    """What the parameters of a piece end in."""
    return f"p{number}"


def within_of(piece: FormatSpec, name: str) -> str:
    """The axis of the rows of a block, in the piece of this name."""
    return f"{base_name(piece.rule, piece.shape.within)}_{name}"


def composed(program: Program, spec: ComposedSpec, within: str, buffer: str, tasks: str | None) -> Program:
    """The program with its sparse buffer in the formats of the pieces, and nothing that fills them."""
    rules = [
        place_rule(piece.rule, program, name=name_of(number), buffers=(buffer,), tasks=tasks, masked=spec.masked)
        for number, piece in enumerate(spec.pieces)
    ]
    return decompose_format(program, rules, copies=False, within=within)
