"""What Tensor Cores multiply: the sizes of their tiles, and which GPUs have the instructions of fragments."""

from __future__ import annotations

from ...compiler.language.types import BYTES

ROWS, COLUMNS, LANES = 16, 8, 32
SIDE_BY_SIDE = {dtype: 4 // BYTES[dtype] for dtype in ("float16", "bfloat16", "float32")}
"""Elements in a register of 32 bits, of the types that they multiply."""


def block_of(dtype: str) -> tuple[int, int]:
    """Rows and columns of a block of a sparse matrix that they multiply."""
    return ROWS, 8 * SIDE_BY_SIDE[dtype]


def refuses(in_features: int, out_features: int, dtype: str) -> str | None:
    """Why matrices of this shape and type cannot be cut into tiles, or None."""
    if dtype not in SIDE_BY_SIDE:
        return f"Tensor Cores do not multiply {dtype} here"
    if in_features < 1 or out_features < 1:
        return f"matrices of shape ({in_features}, {out_features}) have no elements"
    return None


def padded(in_features: int, out_features: int, dtype: str) -> tuple[int, int]:
    """The shape of the whole tiles that cover a matrix."""
    step = 8 * SIDE_BY_SIDE[dtype]
    return -(-in_features // step) * step, -(-out_features // COLUMNS) * COLUMNS


# The first architecture with mma.m16n8k16, bfloat16 and tf32.
FIRST_ARCH = 80
# How many times as many multiplications a second Tensor Cores do as lanes, about (data sheets of A100 and H200), by
# bytes of an element: where a smaller part of the tiles are elements of the matrix, they gain nothing.
FASTER = {2: 16, 4: 8}


def has_instructions(arch: str) -> bool:
    """Whether an architecture has the instructions of fragments."""
    version = arch.removeprefix("sm_").rstrip("af")
    return not version.isdecimal() or int(version) >= FIRST_ARCH
