"""The functions of scores and of pairs that people write: those of PyTorch's own tests of FlexAttention."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks
from torch.nn.functional import silu

BATCH, HEADS, LENGTH, WIDTH, WINDOW = 2, 2, 40, 4, 3
never = float("-inf")
_generator = torch.Generator().manual_seed(0)


def table(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_generator, dtype=torch.float64).requires_grad_()


OF_HEADS, OF_BATCHES, OF_QUERIES, OF_KEYS = table(HEADS), table(BATCH), table(LENGTH), table(LENGTH)
OF_PAIRS, OF_ALL = table(LENGTH, LENGTH), table(BATCH, HEADS, LENGTH, LENGTH)
OF_BATCHES_AND_PAIRS, OF_HEADS_AND_PAIRS = table(BATCH, LENGTH, LENGTH), table(HEADS, LENGTH, LENGTH)
OF_DISTANCES, OF_WINDOW = table(2 * LENGTH), table(2 * WINDOW + 1)
OF_FOUR, OF_FOUR_FIRST = table(BATCH, HEADS, 4, LENGTH), table(4, BATCH, HEADS, LENGTH)
OF_ROWS = table(BATCH, HEADS, LENGTH, LENGTH // 8)
BATCHES_AND_QUERIES = table(BATCH, LENGTH)
OF_ONE, MASS = table(1), torch.full((1,), 2.0, dtype=torch.float64).requires_grad_()
OF_SIDES, OF_CODES, OF_EIGHT = table(BATCH, HEADS, 2, LENGTH), table(9, HEADS), table(BATCH, 8)
ROWS, COLUMNS = OF_SIDES.unbind(2)
POINTS, REACHES = table(LENGTH, 3), torch.logspace(-1, 1, HEADS, dtype=torch.float64)
POISONED = torch.cat([OF_ALL.detach(), torch.full_like(OF_ALL, torch.nan)])
OF_HALF = torch.randn(LENGTH, generator=_generator).bfloat16()
CODE = torch.randint(0, 9, (LENGTH, LENGTH), generator=_generator)
WHICH, ONE, CUT = torch.tensor(1), torch.ones((), dtype=torch.int32), torch.tensor(2)
SEQUENCE = torch.arange(LENGTH) >= LENGTH // 2
DOCUMENT = torch.tensor([0] * 10 + [1] * 7 + [2] * 23, dtype=torch.int32)
OFFSETS = torch.tensor([0, 10, 17], dtype=torch.int32)
BOTH_WAYS = torch.tensor([5, 17], dtype=torch.int32)
LENGTHS = torch.arange(BATCH, dtype=torch.int32) + 1
OTHER_PLACE = torch.randint(0, LENGTH, (LENGTH,), generator=_generator)
TRUTH = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).tril()


class Hidden(torch.autograd.Function):
    """A function of the user's with a derivative of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(score, allowed):
        return torch.where(allowed, score, never)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, gradient):
        return gradient.where(ctx.saved_tensors[0], 0.0), None


def neighbours(s, b, h, q, k):
    rows, columns = (q / 8 - k / 8).abs(), (q % 8 - k % 8).abs()
    return torch.where((rows <= WINDOW) | (columns <= WINDOW), s, never)


def both_ways(s, b, h, q, k):
    last = BOTH_WAYS[b]
    return torch.where(((q <= last) & (k <= last)) | (q >= k), s, never)


def within_documents(s, b, h, q, k):
    own, other = q - OFFSETS[DOCUMENT[q]], k - OFFSETS[DOCUMENT[k]]
    return torch.where(own >= other, s, never)


def distance_of_points(s, b, h, q, k):
    return torch.exp(-(POINTS[q] - POINTS[k]).pow(2).sum(-1).sqrt() / REACHES[h]) * s


def gated_positions(s, b, h, q, k):
    gate = OF_HEADS[h] * (ROWS[b, h, q] + COLUMNS[b, h, k])
    return s + ((q >= CUT) & (k >= CUT)).to(s.dtype) * gate * OF_CODES[CODE[q, k], h]


MODS: dict[str, tuple[Callable, tuple[Tensor, ...]]] = {
    "identity": (lambda s, b, h, q, k: s, ()),
    "times two": (lambda s, b, h, q, k: s * 2, ()),
    "squared": (lambda s, b, h, q, k: s * s, ()),
    "causal": (lambda s, b, h, q, k: torch.where(q >= k, s, never), ()),
    "inverse causal": (lambda s, b, h, q, k: torch.where(q <= k, s, never), ()),
    "distance": (lambda s, b, h, q, k: s + (q - k), ()),
    "causal distance": (lambda s, b, h, q, k: torch.where(q >= k, s + (q - k), never), ()),
    "alibi": (lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / HEADS)), ()),
    "scale of heads": (lambda s, b, h, q, k: s * OF_HEADS[h], (OF_HEADS,)),
    "sines": (lambda s, b, h, q, k: torch.sin(torch.cos(s)) + torch.tan(b), ()),
    "product of sines": (lambda s, b, h, q, k: torch.cos(s) * torch.sin(s) + torch.tan(b), ()),
    "documents": (lambda s, b, h, q, k: torch.where((q >= k) & (DOCUMENT[q] == DOCUMENT[k]), s, never), ()),
    "index after index": (lambda s, b, h, q, k: s + BATCHES_AND_QUERIES[b][q], (BATCHES_AND_QUERIES,)),
    "indices in turns": (lambda s, b, h, q, k: s + OF_FOUR_FIRST[0][b, h][q], (OF_FOUR_FIRST,)),
    "index of a tensor": (lambda s, b, h, q, k: s + OF_FOUR[b][h][WHICH, q], (OF_FOUR,)),
    "all indices": (lambda s, b, h, q, k: s + OF_FOUR[b, h, WHICH, q], (OF_FOUR,)),
    "even keys": (lambda s, b, h, q, k: torch.where(k % 2 == 0, s, never), ()),
    "all biases": (
        lambda s, b, h, q, k: s + OF_QUERIES[q] + OF_BATCHES[b] + OF_HEADS[h],
        (OF_QUERIES, OF_BATCHES, OF_HEADS),
    ),
    "halves": (lambda s, b, h, q, k: torch.where(SEQUENCE[q] == SEQUENCE[k], s, never), ()),
    "bias of pairs": (lambda s, b, h, q, k: s + OF_PAIRS[q, k], (OF_PAIRS,)),
    "bias of pairs, index after index": (lambda s, b, h, q, k: s + OF_PAIRS[q][k], (OF_PAIRS,)),
    "bias of pairs, transposed": (lambda s, b, h, q, k: s + OF_PAIRS[k, q], (OF_PAIRS,)),
    "bias of batches": (lambda s, b, h, q, k: s + OF_BATCHES_AND_PAIRS[b, q, k], (OF_BATCHES_AND_PAIRS,)),
    "bias of heads, transposed": (lambda s, b, h, q, k: s + OF_HEADS_AND_PAIRS[h, k, q], (OF_HEADS_AND_PAIRS,)),
    "bias of all": (lambda s, b, h, q, k: s + OF_ALL[b, h, q, k], (OF_ALL,)),
    "bias of rows of keys": (lambda s, b, h, q, k: s + OF_ROWS[b, h, q, k // 8], (OF_ROWS,)),
    "relative bias": (lambda s, b, h, q, k: s + OF_DISTANCES[(q - k) + LENGTH], (OF_DISTANCES,)),
    "bias of distances": (lambda s, b, h, q, k: s + OF_DISTANCES[torch.abs(q - k)], (OF_DISTANCES,)),
    "bias of sums": (lambda s, b, h, q, k: s + OF_DISTANCES[q + k], (OF_DISTANCES,)),
    "bias of a window": (
        lambda s, b, h, q, k: s + OF_WINDOW[torch.clamp(q - k + WINDOW, 0, 2 * WINDOW)],
        (OF_WINDOW,),
    ),
    "bias of keys": (lambda s, b, h, q, k: s + OF_KEYS[k], (OF_KEYS,)),
    "one bias twice": (lambda s, b, h, q, k: s + OF_KEYS[q] + OF_KEYS[k], (OF_KEYS,)),
    "two biases": (lambda s, b, h, q, k: s + OF_QUERIES[q] + OF_KEYS[k], (OF_QUERIES, OF_KEYS)),
    "bias of another place": (lambda s, b, h, q, k: s + OF_QUERIES[OTHER_PLACE[q]], (OF_QUERIES,)),
    "scale of queries": (lambda s, b, h, q, k: s * OF_QUERIES[q], (OF_QUERIES,)),
    "gate of heads": (lambda s, b, h, q, k: s * torch.sigmoid(OF_HEADS[h].to(torch.float64)), (OF_HEADS,)),
    "both ways": (both_ways, ()),
    "neighbours in two dimensions": (neighbours, ()),
    "silu": (lambda s, b, h, q, k: silu(s), ()),
    "scores up to a length": (lambda s, b, h, q, k: torch.where(s <= LENGTHS[b], s, never), ()),
    "a number around": (lambda s, b, h, q, k: s + ONE, ()),
    "nested documents": (within_documents, ()),
    "a function of the user's": (lambda s, b, h, q, k: Hidden.apply(s, q <= k), ()),
    "element of one": (lambda s, b, h, q, k: s + OF_ONE[0], (OF_ONE,)),
    "logarithm of an element": (lambda s, b, h, q, k: s * torch.log(MASS[0]), (MASS,)),
    "inverse": (lambda s, b, h, q, k: 1 / s, ()),
    "logarithm where there is one": (lambda s, b, h, q, k: torch.where(s > 0, torch.log(s), s), ()),
    "bias beside NaN": (lambda s, b, h, q, k: s + POISONED[b, h, q, k], ()),
    "biases of bfloat16": (lambda s, b, h, q, k: s * OF_HALF[q] + OF_HALF[k], ()),
    "composed": (lambda s, b, h, q, k: torch.where(q <= k, s + (q - k), never), ()),
    "whole quotient": (lambda s, b, h, q, k: s - q // (1 + k), ()),
    "sum of a row": (lambda s, b, h, q, k: s * OF_EIGHT[b].sum(dim=-1), (OF_EIGHT,)),
    "distance of points": (distance_of_points, ()),
    "gated positions": (gated_positions, (OF_SIDES, OF_CODES)),
    "truth": (lambda s, b, h, q, k: s + TRUTH[b, h.new_zeros(h.shape), q, k], ()),
}


OF_ALL_PAIRS: dict[str, Callable] = {
    "index after index": lambda s, b, h, q, k: s + BATCHES_AND_QUERIES[b, q],
    "indices in turns": lambda s, b, h, q, k: s + OF_FOUR_FIRST[0, b, h, q],
    "index of a tensor": lambda s, b, h, q, k: s + OF_FOUR[b, h, WHICH, q],
    "bias of pairs, index after index": lambda s, b, h, q, k: s + OF_PAIRS[q, k],
}
"""Functions whose indices are of one pair, as functions of all pairs at once."""


def causal(b, h, q, k):
    return q >= k


def shifted(b, h, q, k, offset):
    return q + offset >= k


class CausalOrNear:
    """A function that is an object."""

    __name__ = "causal_or_near"

    def __init__(self, width: int):
        self.width = width

    def __call__(self, b, h, q, k):
        return (q >= k) | (k - q < self.width)


PARTLY = torch.where(DOCUMENT == 1, -1, DOCUMENT)
OF_SEQUENCES = torch.stack([DOCUMENT, DOCUMENT.flip(0)])
SHIFTS, NEAR = torch.tensor([0.0, 1.5]), torch.tensor(2.5)
PRESENT = torch.arange(LENGTH) < torch.tensor([[11], [25]])

MASKS: dict[str, Callable] = {
    "all": noop_mask,
    "causal": causal,
    "inverse causal": lambda b, h, q, k: q <= k,
    "window": and_masks(causal, lambda b, h, q, k: q - k <= 5),
    "none": and_masks(causal, lambda b, h, q, k: q < k),
    "either": or_masks(causal, lambda b, h, q, k: q < k),
    "documents": lambda b, h, q, k: DOCUMENT[q] == DOCUMENT[k],
    "first queries": lambda b, h, q, k: q < LENGTH // 2,
    "prefix": or_masks(causal, lambda b, h, q, k: k < 7),
    "a tensor": lambda b, h, q, k: TRUTH[b, h.new_zeros(h.shape), q, k],
    "every other sequence": lambda b, h, q, k: (q >= k) & (b % 2 == 0),
    "lengths": lambda b, h, q, k: (q < BOTH_WAYS[b]) & (k < BOTH_WAYS[b]),
    "padded causal": lambda b, h, q, k: (q < 23) & (q >= k),
    "beginning and end": lambda b, h, q, k: (k < 7) | (k >= 30),
    "beyond a window": lambda b, h, q, k: (q >= k) & (q - k > 5),
    "some of no document": lambda b, h, q, k: (PARTLY[q] == PARTLY[k]) & (PARTLY[q] != -1) & (PARTLY[k] != -1),
    "documents of sequences": lambda b, h, q, k: OF_SEQUENCES[b, q] == OF_SEQUENCES[b, k],
    "clamped documents": lambda b, h, q, k: DOCUMENT[q.clamp(0, LENGTH - 1)] == DOCUMENT[k.clamp(0, LENGTH - 1)],
    "shifted by a number of each sequence": lambda b, h, q, k: (q + SHIFTS[b] * 8) >= k,
    "shifted by a number": lambda b, h, q, k: q + ONE >= k,
    "nearer than a number": lambda b, h, q, k: (q - k).abs() < NEAR,
    "not of a sequence": lambda b, h, q, k: ~PRESENT[b, q],
    "a partial function": functools.partial(shifted, offset=5),
    "an object": CausalOrNear(3),
}
