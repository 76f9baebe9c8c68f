"""What is computed in a cell: a mask, operands, the right answer, and the least work that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.operators.work import Work
from benchmarks.support.cells import relative_error
from gnn_sparse_backend.ops.masked.flex.block_masks import mask_of

BLOCK, WINDOW = 64, 128
PREFIX, DOCUMENTS, CAP = 4, 8, 20.0
"""The share of tokens that a prefix is of, the number of documents, and the cap of scores."""


def documents(n: int) -> Tensor:
    """(n,) the document of each token: `DOCUMENTS`, of which each is longer than the one before."""
    lengths = torch.arange(1, DOCUMENTS + 1) * n // (DOCUMENTS * (DOCUMENTS + 1) // 2)
    lengths[-1] += n - lengths.sum()
    return torch.arange(DOCUMENTS).repeat_interleave(lengths)


def _functions(n: int) -> dict[str, Callable[..., Tensor]]:
    """The masks of FlexAttention by their names, of n tokens."""
    document = documents(n)
    causal = lambda b, h, i, j: j <= i
    return {
        "window": lambda b, h, i, j: (j <= i) & (i - j < 2 * WINDOW),
        "documents": lambda b, h, i, j: document[i] == document[j],
        "prefix": lambda b, h, i, j: (j <= i) | (j < n // PREFIX),
        "dense": lambda b, h, i, j: i >= 0,
        **dict.fromkeys(("alibi", "soft cap", "relative"), causal),
    }


def _scores(heads: int) -> dict[str, Callable[..., Tensor]]:
    """The functions of scores by the names of their cases, which have causal masks."""
    slopes = torch.exp2(-torch.arange(1, heads + 1) * 8.0 / heads)
    bias = torch.randn(heads, 2 * WINDOW, generator=torch.Generator().manual_seed(9))
    return {
        "alibi": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "soft cap": lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
        "relative": lambda s, b, h, i, j: s + bias[h, (i - j).clamp(0, 2 * WINDOW - 1)],
    }


FLEX = "window", "documents", "prefix", "alibi", "soft cap", "relative", "dense"
"""Cases that are FlexAttention's: masks, and changed scores under a causal mask."""
DECODE = "decode"
"""One query of each head against the keys of all tokens, which `SHARED` heads share."""
SHARED = 4
ROWS = 1024
"""Queries whose answer is computed at a time."""
MASKS: dict[str, Callable[[int], gsb.masks.Mask]] = {
    "band": lambda n: gsb.masks.band(n, WINDOW, WINDOW),
    "global": lambda n: gsb.masks.band(n, WINDOW, WINDOW, global_tokens=[0]),
    "butterfly": lambda n: gsb.masks.butterfly(n, BLOCK),
    "causal": lambda n: gsb.masks.causal(n),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPS = ("forward", "step", "sddmm", "spmm")
"""step: attention forward and backward, to q, k and v, from a random cotangent."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Largest difference to float64, relative to the largest number of the answer."""


@dataclass(frozen=True)
class Place:
    """A cell: a mask of some tokens, heads of a width, an operator and a type."""

    mask_name: str
    op: str
    precision: str
    tokens: int = 4096
    heads: int = 12
    width: int = 64
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.mask_name} of {self.tokens} tokens, {self.heads} heads of {self.width}, {self.op}, {self.precision}"
        )

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]


class Problem:
    """The operands of a place, made when they are first used."""

    def __init__(self, place: Place, device: torch.device | str = "cpu") -> None:
        self.place = place
        self.device = torch.device(device)
        self.mask = self._mask().to(self.device)
        self._answers: dict[int, tuple[Tensor, ...]] = {}

    def _mask(self) -> gsb.masks.Mask:
        name, n = self.place.mask_name, self.place.tokens
        if self.place.op == DECODE:
            return gsb.masks.full((1, n))
        return MASKS[name](n) if name in MASKS else mask_of(self.block_mask)

    @cached_property
    def block_mask(self) -> Any:
        """The mask as PyTorch's ``BlockMask``, of a case of `FLEX`."""
        from torch.nn.attention.flex_attention import create_block_mask

        n = self.place.tokens
        return create_block_mask(_functions(n)[self.place.mask_name], None, None, n, n, device=self.device)

    @cached_property
    def score_mod(self) -> Callable[..., Tensor] | None:
        """What scores become; None for themselves."""
        return _scores(self.place.heads).get(self.place.mask_name)

    def changed(self, scores: Tensor, head: slice, rows: slice = slice(None)) -> Tensor:
        """Scores (heads, queries, tokens) of some heads and queries as the case has them, -inf where a pair is not
        allowed.
        """
        if self.score_mod is not None:
            at = torch.arange(self.place.tokens)
            of = torch.arange(self.place.heads)[head, None, None]
            scores = self.score_mod(scores, torch.zeros((), dtype=torch.int64), of, at[rows, None], at)
        return scores.masked_fill(~self.allowed[rows], -torch.inf)

    def _drawn(self, number: int, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.place.seed + number)
        return torch.randn(shape, generator=generator).to(self.device, self.place.dtype)

    @cached_property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        place = self.place
        of_keys = place.heads // SHARED if place.op == DECODE else place.heads
        queries = 1 if place.op == DECODE else place.tokens
        shapes = (place.heads, queries), *((of_keys, place.tokens),) * 2
        found = [self._drawn(i, 1, *shape, place.width) for i, shape in enumerate(shapes)]
        return tuple(x.requires_grad_(place.op == "step") for x in found)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """Those of q, k and v that the operator has."""
        return {"sddmm": self.qkv[:2], "spmm": self.qkv[2:]}.get(self.place.op, self.qkv)

    def widened(self) -> Problem:
        """The place in float32, with the same values of blocks; q, k and v are drawn anew."""
        found = Problem(replace(self.place, precision="float32"), self.device)
        if self.place.op == "spmm":
            found.values = self.values.float()
        return found

    @cached_property
    def cotangent(self) -> Tensor:
        return self._drawn(3, 1, self.place.heads, self.place.tokens, self.place.width)

    @cached_property
    def values(self) -> Tensor:
        """(1, heads, blocks, block, block), zeros where a block has pairs that the mask has not."""
        found = self._drawn(4, 1, self.place.heads, self.mask.num_blocks, self.mask.block, self.mask.block)
        return found * self.allowed_in_blocks.to(found.dtype)

    @cached_property
    def allowed_in_blocks(self) -> Tensor:
        """(blocks, block, block) bool."""
        uniform = torch.cat(
            [self.mask.tiles, torch.ones_like(self.mask.tiles[:1])]
            if len(self.mask.tiles)
            else [torch.ones(1, self.mask.block, self.mask.block, dtype=torch.uint8, device=self.device)]
        )
        return uniform[self.mask.tile.long()].bool()

    @cached_property
    def allowed(self) -> Tensor:
        """(tokens, tokens) bool."""
        return self.mask.to_dense()[0]

    @cached_property
    def lines(self) -> Tensor:
        """Row of blocks of each block."""
        return torch.repeat_interleave(self.mask.indptr.diff().long())

    def in_blocks(self, dense: Tensor) -> Tensor:
        """(blocks, block, block) of a (tokens, tokens) matrix."""
        side, rows = self.mask.block, self.mask.block_rows
        cells = dense.view(rows, side, rows, side).transpose(1, 2)
        return cells[self.lines, self.mask.indices.long()] * self.allowed_in_blocks.to(dense.dtype)

    def dense_values(self, head: int, dtype: torch.dtype) -> Tensor:
        """(tokens, tokens) of the values of a head."""
        side, rows = self.mask.block, self.mask.block_rows
        cells = torch.zeros(rows, rows, side, side, dtype=dtype, device=self.device)
        cells[self.lines, self.mask.indices.long()] = self.values[0, head].to(dtype)
        return cells.transpose(1, 2).reshape(rows * side, rows * side)

    def mismatch(self, answer: tuple[Tensor, ...], heads: tuple[int, ...] = (0, -1)) -> str | None:
        """What is wrong with an answer, by float64 on some of the heads; None if it is right. An answer has the result,
        and in a step the gradients.
        """
        for head in dict.fromkeys(head % self.place.heads for head in heads):
            if head not in self._answers:
                self._answers[head] = self._expected(head)
            for number, (found, wanted) in enumerate(zip(answer, self._answers[head], strict=True)):
                error = relative_error(found[0, head], wanted)
                if not error < TOLERANCE[self.place.dtype]:
                    return f"output {number} of head {head} is off by {error:.2g}"
        return None

    def _expected(self, head: int) -> tuple[Tensor, ...]:
        of_keys = self.qkv[1].shape[1]
        of = (head, *(head * of_keys // self.place.heads,) * 2)
        q, k, v = (x[0, own].detach().double() for x, own in zip(self.qkv, of))
        if self.place.op == "sddmm":
            return (self.in_blocks(q @ k.t()),)
        if self.place.op == "spmm":
            return (self.dense_values(head, torch.float64) @ v,)
        step = self.place.op == "step"
        leaves = [x.requires_grad_(step) for x in (q, k, v)]
        out, grads = torch.empty_like(q.detach()), [torch.zeros_like(x) for x in leaves]
        for first in range(0, len(q), ROWS):
            rows = slice(first, first + ROWS)
            scores = (q[rows] @ k.t() * q.shape[1] ** -0.5)[None]
            part = self.changed(scores, slice(head, head + 1), rows)[0].softmax(-1) @ v
            out[rows] = part.detach()
            if step:
                found = torch.autograd.grad(part, leaves, self.cotangent[0, head, rows].double())
                for total, one in zip(grads, found):
                    total += one
        return (out.detach(), *(grads if step else ()))

    def work(self) -> Work:
        """The least that any algorithm does: products at the allowed pairs, and each operand moved once. gather: keys
        and values once for each row of blocks that attends them.
        """
        place, size = self.place, self.place.dtype.itemsize
        pairs, rows = self.mask.num_pairs * place.heads, place.tokens * place.heads
        blocks = self.mask.num_blocks * place.heads
        values = blocks * self.mask.block**2 * size
        if place.op == DECODE:
            keys = 2 * place.tokens * place.heads // SHARED * place.width * size
            return Work(keys, keys, 4 * pairs * place.width)
        row, seen = rows * place.width * size, blocks * self.mask.block * place.width * size
        if place.op in ("sddmm", "spmm"):
            return Work(2 * row + values, row + seen + values, 2 * pairs * place.width)
        if place.op == "forward":
            return Work(4 * row, 2 * row + 2 * seen, 4 * pairs * place.width)
        # backward: gradients of v, of the weights, of q and of k
        return Work(8 * row, 4 * row + 4 * seen, 12 * pairs * place.width)
