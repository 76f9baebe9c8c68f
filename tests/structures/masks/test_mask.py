"""Masks as values: unions and intersections, padding, heads, other blocks, transposes, what they hold."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from gnn_sparse_backend import masks
from tests.structures.masks.test_makers import assert_is, many, shapes, sides


@st.composite
def drawn(draw, shape, heads=(1, 2, 3)) -> masks.Mask:
    """Any mask, with empty rows and whole blocks."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    count, density = draw(st.sampled_from(heads)), draw(st.sampled_from((0.0, 0.02, 0.9)))
    dense = torch.rand(count, *shape, generator=generator) < density
    low, high = sorted((draw(st.integers(0, shape[0])), draw(st.integers(0, shape[0]))))
    dense[:, low:high] = draw(st.booleans())
    return masks.from_dense(dense, block=draw(sides))


@many
@given(st.data(), shapes)
def test_unions_and_intersections(data, shape):
    heads = data.draw(st.integers(1, 3))
    a, b = (data.draw(drawn(shape, (1, heads))) for _ in range(2))
    assert_is(a | b, a.to_dense() | b.to_dense())
    assert_is(a & b, a.to_dense() & b.to_dense())
    assert (a | b).fingerprint == (b | a).fingerprint
    assert a.block % (a | b).block == 0 and b.block % (a | b).block == 0


@many
@given(st.data(), shapes, sides)
def test_blocks_of_another_side(data, shape, side):
    mask = data.draw(drawn(shape))
    assert_is(mask.with_block(side), mask.to_dense())
    assert mask.with_block(side).with_block(mask.block).fingerprint == mask.fingerprint
    assert mask.with_block(mask.block) is mask


@many
@given(st.data(), shapes)
def test_transposes(data, shape):
    mask = data.draw(drawn(shape))
    back = mask.transposed()
    assert_is(back, mask.to_dense().transpose(1, 2))
    assert mask.transposed() is back and back.transposed().fingerprint == mask.fingerprint
    order = mask.transposed_order.long()
    lines = torch.arange(mask.heads * mask.block_rows).repeat_interleave(mask.indptr.diff().long())
    places = torch.stack([lines // max(mask.block_rows, 1), mask.indices, lines % max(mask.block_rows, 1)], 1)
    lines = torch.arange(back.heads * back.block_rows).repeat_interleave(back.indptr.diff().long())
    turned = torch.stack([lines // max(back.block_rows, 1), lines % max(back.block_rows, 1), back.indices], 1)
    assert mask.transposed_order.dtype == torch.int32 and torch.equal(places[order], turned)


@many
@given(st.data(), shapes)
def test_heads(data, shape):
    parts = [data.draw(drawn(shape)) for _ in range(data.draw(st.integers(1, 3)))]
    mask = masks.heads(parts)
    assert_is(mask, torch.cat([part.to_dense() for part in parts]))
    dense = mask.to_dense()
    for head in range(mask.heads):
        graph = mask.graph(head)
        rows = torch.arange(shape[0]).repeat_interleave(graph.indptr.diff().long())
        assert torch.equal(torch.stack([rows, graph.indices.long()], 1), dense[head].nonzero())


def test_padding():
    lengths, mask = torch.tensor([3, 0, 5]), masks.causal(5, block=2)
    padded = mask & masks.padding(lengths, 5)
    assert torch.equal(padded.padding, torch.arange(5) < lengths[:, None])
    assert mask.padding is None and padded.indices is mask.indices
    assert padded.transposed() is mask.transposed() and padded.fingerprint == mask.fingerprint
    allowed = torch.tensor([[True, False, True, True, True]]).expand(3, 5)
    both = masks.padding(allowed) & padded
    assert torch.equal(both.padding, padded.padding & allowed)
    assert torch.equal((padded & masks.padding(allowed)).padding, both.padding)
    wider = padded | (masks.band(5, 0, 1, block=2) & masks.padding(lengths, 5))
    assert torch.equal(wider.padding, padded.padding)
    assert torch.equal(wider.to_dense(), mask.to_dense() | masks.band(5, 0, 1).to_dense())
    assert torch.equal((padded & masks.full(5)).padding, padded.padding)
    assert torch.equal((masks.full(5) & padded).padding, padded.padding)
    assert torch.equal(padded.with_block(4).padding, padded.padding)
    assert torch.equal(masks.heads([padded, padded]).padding, padded.padding)
    either = masks.padding(lengths, 5) | masks.padding(allowed)
    assert torch.equal(either.allowed, padded.padding | allowed)
    assert str(either) == "Padding(3 sequences, 5 keys)"


def test_padding_keeps_its_own_values():
    allowed = torch.ones(2, 4, dtype=torch.bool)
    padded = masks.full(4) & masks.padding(allowed)
    allowed.zero_()
    assert bool(padded.padding.all())


WRONG = [
    (lambda m: m | masks.padding(torch.tensor([1]), 9), TypeError, "Padding(1 sequences, 9 keys) takes keys away"),
    (lambda m: m & masks.padding(torch.tensor([1]), 8), ValueError, "9 keys, and Padding(1 sequences, 8 keys) another"),
    (lambda m: m & torch.ones(9, 9).bool(), TypeError, "mask & Tensor: expected a Mask"),
    (lambda m: torch.ones(9, 9).bool() & m, TypeError, "mask & Tensor: expected a Mask"),
    (lambda m: m | 3, TypeError, "mask | int: expected a Mask"),
    (lambda m: m | masks.causal(8), ValueError, "Mask(8 queries, 8 keys"),
    (lambda m: masks.heads([m] * 2) | masks.heads([m] * 3), ValueError, "3 heads"),
    (lambda m: m | (m & masks.padding(torch.tensor([1]), 9)), ValueError, "different padding"),
    (lambda m: masks.heads([m & masks.padding(torch.tensor([1]), 9), m]), ValueError, "different padding"),
    (
        lambda m: m & masks.padding(torch.tensor([1]), 9) & masks.padding(torch.tensor([1, 2]), 9),
        ValueError,
        "got (1, 9) and (2, 9)",
    ),
    (lambda m: m.graph(1), IndexError, "head must be in [0, 1), got 1"),
    (lambda m: m.graph(0.0), TypeError, "head must be an int, got 0.0"),
    (lambda m: m.with_block(0), ValueError, "block must be from 1 to 1024, got 0"),
    (lambda m: setattr(m, "block", 3), AttributeError, "a Mask is immutable"),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_bad_operands_are_quoted(call, kind, words):
    with pytest.raises(kind) as told:
        call(masks.causal(9))
    assert words in str(told.value)


def test_what_a_mask_holds():
    mask = masks.band(1000, 3, 3, block=16)
    held = gsb.memory(mask)
    assert held.nbytes == mask.nbytes and held.derived == 0
    back = mask.transposed()
    mask.graph()
    assert gsb.memory(mask).derived >= back.nbytes + mask.graph().num_edges * 4
    mask.release()
    assert gsb.memory(mask).derived == 0 and mask.transposed() is not back
    assert repr(mask) == "Mask(1000 queries, 1000 keys, 1 head, 187 blocks of 16, 4 tiles, cpu)"


@settings(deadline=None, max_examples=10)
@given(st.data(), shapes)
def test_copies_and_pickles(data, shape):
    mask = data.draw(drawn(shape)) & masks.padding(torch.tensor([1, 0]), shape[1])
    assert copy.copy(mask) is mask and copy.deepcopy(mask) is mask and mask.to("cpu") is mask
    back = pickle.loads(pickle.dumps(mask))
    assert back.fingerprint == mask.fingerprint and torch.equal(back.padding, mask.padding)
    assert hash(back) != hash(mask) and back != mask
    assert torch.equal(pickle.loads(pickle.dumps(masks.Padding(mask.padding))).allowed, mask.padding)


def test_masks_of_inference_mode_take_part_in_training():
    with torch.inference_mode():
        mask = masks.band(20, 1, 1, block=8) & masks.padding(torch.tensor([3]), 20)
        arrays = *mask._arrays, *mask.transposed()._arrays[:4], mask.transposed_order, mask.graph().indices
    assert not any(array.is_inference() for array in arrays)


def test_the_module_is_found_when_it_is_first_used():
    assert gsb.masks is masks and "masks" in dir(gsb)
