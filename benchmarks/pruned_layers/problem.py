"""What is computed in a cell: a pruned weight, operands, the right answer, and the least work that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import Linear

from benchmarks.operators.work import INDEX_BYTES, Work
from benchmarks.support.cells import relative_error
from models.patterns import block_pattern, unstructured_pattern

BLOCK, EMPTY_ROWS = 32, 0.25
"""Side of the blocks of structured patterns, and the share of their rows of blocks that keep nothing."""
PATTERNS = {"blocks": 0.07, "unstructured": 0.06}
"""Patterns, and the share of the weights that is kept unless a cell says otherwise."""
TWO_OF_FOUR = "2:4"
"""A pattern for GPUs alone, of which half is kept."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPS = ("forward", "step")
"""step: forward and backward, to the input, the weights and the bias, from a random cotangent."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Largest difference to float64, relative to the largest number of the answer."""


def pattern(name: str, rows: int, columns: int, density: float, seed: int = 0) -> Tensor:
    """(rows, columns) True where a weight is kept. "2:4": two of each four in a row, as Tensor Cores skip them."""
    if name == "blocks":
        return block_pattern(rows, columns, BLOCK, density, empty_rows=EMPTY_ROWS, seed=seed)
    if name == TWO_OF_FOUR:
        drawn = torch.rand(rows, columns // 4, 4, generator=torch.Generator().manual_seed(seed))
        return (drawn.argsort(-1).argsort(-1) < 2).flatten(1)
    return unstructured_pattern(rows, columns, density, seed=seed)


@dataclass(frozen=True)
class Place:
    """A cell: a layer of a shape (out, in), whose weights were pruned to a pattern, on so many tokens."""

    pattern: str
    op: str
    precision: str
    rows: int
    columns: int
    density: float
    tokens: int = 512
    seed: int = 0

    def __str__(self) -> str:
        share = f"{self.density:.0%} in {self.pattern}" if self.pattern == "blocks" else f"{self.density:.0%} of single"
        return f"{self.shape}, {share}, {self.tokens} tokens, {self.op}, {self.precision}"

    @property
    def shape(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]


class Problem:
    """The operands of a place."""

    def __init__(self, place: Place, device: torch.device | str = "cpu") -> None:
        self.place = place
        generator = torch.Generator().manual_seed(place.seed)
        self.kept = pattern(place.pattern, place.rows, place.columns, place.density, place.seed).to(device)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device, place.dtype)

        self.linear = Linear(place.columns, place.rows, dtype=place.dtype, device=device)
        with torch.no_grad():
            self.linear.weight.copy_(drawn(place.rows, place.columns) * self.kept / place.columns**0.5)
            self.linear.bias.copy_(drawn(place.rows))
        self.x = drawn(place.tokens, place.columns).requires_grad_(place.op == "step")
        self.cotangent = drawn(place.tokens, place.rows)

    @cached_property
    def expected(self) -> tuple[Tensor, ...]:
        """The result in float64; in a step also the gradients of x, of the kept weights row by row, and of the bias."""
        weight, bias = self.linear.weight.detach().double(), self.linear.bias.detach().double()
        x, g = self.x.detach().double(), self.cotangent.double()
        y = x @ weight.t() + bias
        return (y,) if self.place.op == "forward" else (y, g @ weight, (g.t() @ x)[self.kept], g.sum(0))

    def mismatch(self, answer: tuple[Tensor, ...]) -> str | None:
        """What is wrong with an answer; None if it is right."""
        for number, (found, wanted) in enumerate(zip(answer, self.expected, strict=True)):
            error = relative_error(found, wanted)
            if not error < TOLERANCE[self.place.dtype]:
                return f"output {number} is off by {error:.2g}"
        return None

    def work(self) -> Work:
        """The least that any algorithm does: products with the kept weights, and each operand moved once. gather: a row
        of tokens for each weight.
        """
        place, size = self.place, self.place.dtype.itemsize
        nnz = int(self.kept.sum())
        ends = (place.rows + place.columns) * place.tokens * size
        weights = nnz * (size + INDEX_BYTES) + place.rows * INDEX_BYTES
        once = Work(ends + weights, nnz * place.tokens * size + weights, 2 * nnz * place.tokens)
        return once if place.op == "forward" else once + once + once
