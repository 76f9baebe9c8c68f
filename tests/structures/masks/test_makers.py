"""What makers of masks allow, against formulas over every pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from gnn_sparse_backend import masks
from tests.counting import Work

SIDES = (8, 16, 24, 33, 64, 128)
sizes = st.integers(1, 300)
shapes = st.one_of(sizes.map(lambda n: (n, n)), st.tuples(sizes, sizes))
sides = st.sampled_from(SIDES)
many = settings(deadline=None, max_examples=10)


def ahead(shape) -> torch.Tensor:
    """How far each key is ahead of each query."""
    return torch.arange(shape[1])[None] - torch.arange(shape[0])[:, None]


def assert_is(mask: masks.Mask, expected: torch.Tensor) -> None:
    """The mask allows these pairs, and keeps them in the one form for them."""
    expected = expected if expected.dim() == 3 else expected[None]
    assert torch.equal(mask.to_dense(), expected)
    assert mask.num_pairs == int(expected.sum()) and mask.heads == len(expected)
    assert mask.density == pytest.approx(expected.double().mean().nan_to_num().item())
    assert_sound(mask)
    assert mask.fingerprint == masks.from_dense(expected, block=mask.block).fingerprint


def assert_sound(mask: masks.Mask) -> None:
    """What `Mask` says of its arrays, against blocks cut from all of its pairs."""
    side, rows, columns = mask.block, mask.block_rows, mask.block_columns
    assert [x.dtype for x in (mask.indptr, mask.indices, mask.tile)] == [torch.int32] * 3
    assert mask.tiles.dtype == torch.uint8 and mask.tiles.shape[1:] == (side, side)
    assert mask.indptr.numel() == mask.heads * rows + 1
    assert mask.indptr[0] == 0 and mask.indptr[-1] == mask.num_blocks == mask.tile.numel()
    dense = torch.zeros(mask.heads, rows * side, columns * side, dtype=torch.bool)
    dense[:, : mask.shape[0], : mask.shape[1]] = mask.to_dense()
    blocks = dense.view(mask.heads * rows, side, columns, side).transpose(1, 2)
    there = blocks.flatten(2).any(2).nonzero()  # in order
    assert torch.equal(mask.indptr.diff().long(), torch.bincount(there[:, 0], minlength=mask.heads * rows))
    assert torch.equal(mask.indices.long(), there[:, 1])
    found = blocks[there[:, 0], there[:, 1]]
    whole = mask.tile == -1
    assert torch.equal(whole, found.flatten(1).all(1))
    assert torch.equal(mask.tiles[mask.tile[~whole].long()].bool(), found[~whole])
    contents = {tile.numpy().tobytes() for tile in mask.tiles}
    assert len(contents) == len(mask.tiles) and set(mask.tile.tolist()) <= {-1, *range(len(mask.tiles))}


@many
@given(shapes, st.integers(-40, 200), st.integers(-40, 200), sides)
def test_band(shape, left, right, side):
    left = max(left, -right)
    found = ahead(shape)
    assert_is(masks.band(shape, left, right, block=side), (found >= -left) & (found <= right))


@many
@given(shapes, st.integers(0, 70), st.integers(0, 70), st.sets(st.integers(0, 299), max_size=6), sides)
def test_global_tokens(shape, left, right, tokens, side):
    tokens = sorted(token for token in tokens if token < max(shape))
    found = ahead(shape)
    expected = (found >= -left) & (found <= right)
    expected[[token for token in tokens if token < shape[0]]] = True
    expected[:, [token for token in tokens if token < shape[1]]] = True
    assert_is(masks.band(shape, left, right, global_tokens=tokens, block=side), expected)
    again = masks.band(shape, left, right, global_tokens=torch.tensor(tokens, dtype=torch.int32), block=side)
    assert again.fingerprint == masks.from_dense(expected, block=side).fingerprint


@many
@given(shapes, sides)
def test_causal_and_full(shape, side):
    assert_is(masks.causal(shape, block=side), ahead(shape) <= 0)
    assert_is(masks.full(shape, block=side), torch.ones(shape, dtype=torch.bool))
    last = shape[1] - shape[0]
    if shape[0]:
        assert_is(masks.band(shape, None, last, block=side), ahead(shape) <= last)


@many
@given(shapes, st.integers(1, 100), st.booleans(), sides)
def test_strided(shape, stride, causal, side):
    found = ahead(shape)
    expected = (found.abs() < stride) | (found % stride == 0)
    expected = expected & (found <= 0) if causal else expected
    assert_is(masks.strided(shape, stride, causal=causal, block=side), expected)


@many
@given(sizes, sides)
def test_butterfly(n, side):
    at = torch.arange(n) // side
    digits = at[:, None] ^ at
    assert_is(masks.butterfly(n, side), (digits & (digits - 1)) == 0)


@many
@given(shapes, sides)
def test_a_butterfly_is_stretched_over_the_longer_side(shape, side):
    rows, columns = (-(-size // side) for size in shape)
    square = min(rows, columns)
    i, j = (torch.arange(n) // side * square // count for n, count in zip(shape, (rows, columns)))
    digits = i[:, None] ^ j
    assert_is(masks.butterfly(shape, side), (digits & (digits - 1)) == 0)


@many
@given(shapes, sides, st.integers(1, 3), st.integers(0, 2**20))
def test_blocks(shape, side, heads, seed):
    grid = [-(-size // side) for size in shape]
    matrix = torch.rand(heads, *grid, generator=torch.Generator().manual_seed(seed)) < 0.4
    pairs = matrix.repeat_interleave(side, 1).repeat_interleave(side, 2)
    assert_is(masks.blocks(matrix, side), pairs)
    assert_is(masks.blocks(matrix, side, shape=shape), pairs[:, : shape[0], : shape[1]])
    assert_is(masks.blocks(matrix[0], side, shape=shape), pairs[0, : shape[0], : shape[1]])


@many
@given(shapes, sides, st.sampled_from((0.0, 0.01, 0.5, 1.0)), st.integers(0, 2**20))
def test_graphs_and_matrices(shape, side, density, seed):
    expected = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density
    expected[: shape[0] // 2] = False
    row, col = expected.nonzero().unbind(1)
    graph = gsb.Graph.from_coo(torch.cat([row, row.flip(0)]), torch.cat([col, col.flip(0)]), shape)
    mask = masks.from_graph(graph, block=side)
    assert_is(mask, expected)
    assert_is(masks.from_dense(expected.t().contiguous().t(), block=side), expected)
    back = mask.graph()
    assert back.shape == shape and back.num_edges == len(row)
    rows = torch.arange(shape[0]).repeat_interleave(back.indptr.diff().long())
    assert torch.equal(rows, row) and torch.equal(back.indices.long(), col)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_nothing_to_attend(shape):
    nothing = torch.zeros(shape, dtype=torch.bool)
    for mask in (
        masks.band(shape, 1, 1, global_tokens=[]),
        masks.causal(shape),
        masks.butterfly(shape, 8),
        masks.strided(shape, 2),
        masks.from_dense(nothing),
        masks.from_graph(gsb.Graph.from_coo(*torch.zeros(2, 0).long(), shape)),
        masks.causal(shape) | masks.full(shape),
    ):
        assert torch.equal(mask.to_dense()[0], nothing) and mask.num_pairs == 0 and mask.num_blocks == 0
        assert mask.transposed().shape == shape[::-1] and mask.density == 0


def test_long_sequences_take_memory_by_blocks():
    n = 100_000
    with Work() as work:
        mask = masks.band(n, 128, 128, global_tokens=[0, 5, 70_000])
    assert work.elements < n * n / 100  # a (n, n) matrix would be 10 GB
    assert mask.nbytes < 100 * mask.num_blocks and mask.num_blocks < 16_000
    at = torch.arange(n)
    low, high = (at - 128).clamp(min=0), (at + 128).clamp(max=n - 1)
    pairs = high - low + 1 + sum(((token < low) | (token > high)).long() for token in (0, 5, 70_000))
    pairs[[0, 5, 70_000]] = n
    assert mask.num_pairs == int(pairs.sum())


def test_blocks_beyond_32_bits():
    n = 4_000_000  # 62,500 rows and columns of blocks
    mask = masks.band(n, 0, 0, global_tokens=[n - 1])
    back = mask.transposed() | mask
    assert back.fingerprint == mask.fingerprint and mask.num_pairs == 3 * n - 2
    assert int(mask.transposed_order[-1]) == mask.num_blocks - 1


WRONG = [
    (lambda: masks.band(2.5, 1, 1), TypeError, "n must be a number of tokens, or a pair (queries, keys), got 2.5"),
    (lambda: masks.band((1, 2, 3), 1, 1), TypeError, "got (1, 2, 3)"),
    (lambda: masks.band(-1, 1, 1), ValueError, "n must be from 0 to 134217727, got -1"),
    (lambda: masks.causal(2**27), ValueError, "got 134217728"),
    (lambda: masks.band(9, "x", 1), TypeError, "left must be an int, or None for no limit, got 'x'"),
    (lambda: masks.band(9, 2, 2**31), ValueError, "right must be at most 2147483647, or None for no limit, got 21474"),
    (lambda: masks.band(9, 2, -3), ValueError, "no key is from i - left to i + right where left is 2 and right is -3"),
    (lambda: masks.band(9, 2, 3, global_tokens=[9]), ValueError, "global_tokens[0] = 9 is out of range"),
    (lambda: masks.band(9, 2, 3, global_tokens=[-1]), ValueError, "global_tokens[0] = -1 is out of range"),
    (lambda: masks.band(9, 2, 3, global_tokens=4), TypeError, "a list or tensor of positions, got 4"),
    (lambda: masks.band(9, 2, 3, global_tokens=[2**40]), ValueError, "got [1099511627776]"),
    (lambda: masks.band(9, 2, 3, global_tokens=torch.ones(9).bool()), TypeError, "got torch.bool"),
    (lambda: masks.causal(9, block=0), ValueError, "block must be from 1 to 1024, got 0"),
    (lambda: masks.causal(9, block=8.0), TypeError, "block must be an int, the side of a block, got 8.0"),
    (lambda: masks.causal(2**17, block=1), ValueError, "blocks, and a mask at most 2147483647"),
    (lambda: masks.strided(9, 0), ValueError, "stride must be from 1 to 2147483647, got 0"),
    (lambda: masks.strided(9, 2.0), TypeError, "stride must be an int, got 2.0"),
    (lambda: masks.strided(9, 2, causal=1), TypeError, "causal must be True or False, got 1"),
    (lambda: masks.blocks(torch.ones(2, 2)), TypeError, "matrix must be a bool tensor (rows, columns) or"),
    (lambda: masks.blocks(torch.ones(2).bool()), ValueError, "got (2,)"),
    (lambda: masks.blocks(torch.ones(2, 2).bool(), 8, shape=17), ValueError, "holds (16, 16) queries and keys, got"),
    (lambda: masks.from_dense([[True]]), TypeError, "allowed must be a bool tensor (queries, keys) or"),
    (lambda: masks.from_graph(torch.ones(2, 2)), TypeError, "expected a gsb.Graph, got Tensor"),
    (lambda: masks.heads([]), TypeError, "expected a list of masks, one or more, got []"),
    (lambda: masks.heads([masks.causal(3), 4]), TypeError, "got ['Mask', 'int']"),
    (lambda: masks.heads([masks.causal(3), masks.causal(4)]), ValueError, "4 queries, 4 keys"),
    (lambda: masks.Mask(), TypeError, "make a Mask with a function of gsb.masks"),
    (lambda: masks.padding(torch.tensor([3, 5]), 4), ValueError, "allowed[1] = 5 is out of range"),
    (lambda: masks.padding(torch.tensor([3, 5])), ValueError, "give keys=, the number of keys"),
    (lambda: masks.padding(torch.ones(2, 3)), TypeError, "allowed must hold integers, got torch.float32"),
    (lambda: masks.padding(torch.ones(3).bool()), ValueError, "(batch, keys) tensor, got (3,)"),
    (lambda: masks.padding(torch.ones(2, 3).bool(), 4), ValueError, "keys is 4, and allowed has 3 keys"),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_bad_arguments_are_quoted(call, kind, words):
    with pytest.raises(kind) as told:
        call()
    assert words in str(told.value)
