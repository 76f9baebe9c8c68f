"""What is computed in a cell: a mask, operands, the right answer, and the least work that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

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


FLEX = "window", "documents", "prefix", "alibi", "soft cap", "relative"
"""Cases that are FlexAttention's: masks, and changed scores under a causal mask."""
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

    def _mask(self) -> gsb.masks.Mask:
        name, n = self.place.mask_name, self.place.tokens
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

    def changed(self, scores: Tensor, head: slice) -> Tensor:
        """Scores (heads, tokens, tokens) of some heads as the case has them, -inf where a pair is not allowed."""
        if self.score_mod is not None:
            at = torch.arange(self.place.tokens)
            of = torch.arange(self.place.heads)[head, None, None]
            scores = self.score_mod(scores, torch.zeros((), dtype=torch.int64), of, at[:, None], at)
        return scores.masked_fill(~self.allowed, -torch.inf)

    def _drawn(self, number: int, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.place.seed + number)
        return torch.randn(shape, generator=generator).to(self.device, self.place.dtype)

    @cached_property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        place = self.place
        found = [self._drawn(i, 1, place.heads, place.tokens, place.width) for i in range(3)]
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
        for head in heads:
            for number, (found, wanted) in enumerate(zip(answer, self._expected(head), strict=True)):
                error = relative_error(found[0, head], wanted)
                if not error < TOLERANCE[self.place.dtype]:
                    return f"output {number} of head {head} is off by {error:.2g}"
        return None

    def _expected(self, head: int) -> tuple[Tensor, ...]:
        q, k, v = (x[0, head].detach().double() for x in self.qkv)
        if self.place.op == "sddmm":
            return (self.in_blocks(q @ k.t()),)
        if self.place.op == "spmm":
            return (self.dense_values(head, torch.float64) @ v,)
        leaves = [x.requires_grad_() for x in (q, k, v)] if self.place.op == "step" else []
        if self.score_mod is None:
            out = scaled_dot_product_attention(q, k, v, attn_mask=self.allowed)
        else:
            head %= self.place.heads
            scores = self.changed((q @ k.t() * q.shape[1] ** -0.5)[None], slice(head, head + 1))[0]
            out = scores.softmax(-1) @ v
        grads = torch.autograd.grad(out, leaves, self.cotangent[0, head].double()) if leaves else ()
        return (out.detach(), *grads)

    def work(self) -> Work:
        """The least that any algorithm does: products at the allowed pairs, and each operand moved once. gather: keys
        and values once for each row of blocks that attends them.
        """
        place, size = self.place, self.place.dtype.itemsize
        pairs, rows = self.mask.num_pairs * place.heads, place.tokens * place.heads
        blocks = self.mask.num_blocks * place.heads
        values = blocks * self.mask.block**2 * size
        row, seen = rows * place.width * size, blocks * self.mask.block * place.width * size
        if place.op in ("sddmm", "spmm"):
            return Work(2 * row + values, row + seen + values, 2 * pairs * place.width)
        if place.op == "forward":
            return Work(4 * row, 2 * row + 2 * seen, 4 * pairs * place.width)
        # backward: gradients of v, of the weights, of q and of k
        return Work(8 * row, 4 * row + 4 * seen, 12 * pairs * place.width)
