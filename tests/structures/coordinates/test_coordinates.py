"""Coordinates: packing, order, and what is refused; kernel maps against a dictionary of sites."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.structures.coordinates import Coordinates, Occupied, Reached, Window, kernel_map_between
from gnn_sparse_backend.structures.coordinates.packing import Packing, distinct

FAR = 2**31 - 1


def sites_of(rows, **given) -> Coordinates:
    return Coordinates.of(torch.as_tensor(rows), **given)


@given(st.lists(st.tuples(st.integers(0, 3), *[st.integers(-(2**20), 2**20)] * 2), min_size=1, max_size=20))
def test_keys_are_in_the_order_of_rows(rows):
    packing = Packing(((0, 3), (-(2**20), 2**20), (-(2**20), 2**20)))
    keys = packing.pack(torch.tensor(rows))
    assert torch.equal(packing.unpack(keys), torch.tensor(rows))
    assert packing.unpack(distinct(keys)).tolist() == [list(row) for row in sorted(set(rows))]


def by_hand(fine: Coordinates, coarse: Coordinates, window: Window):
    """(offset, output, input) of all pairs, in order."""
    numbers = {tuple(row): number for number, row in enumerate(fine.rows.tolist())}
    found = []
    for k, offset in enumerate(itertools.product(*map(range, window.kernel))):
        for out, (batch, *at) in enumerate(coarse.rows.tolist()):
            axes = zip(at, window.stride, window.before, window.dilation, offset)
            site = (batch, *(o * s - b + d * step for o, s, b, d, step in axes))
            if site in numbers:
                found.append((k, out, numbers[site]))
    return found


def as_triples(kernel_map):
    counts = kernel_map.indptr.diff()
    offset = torch.arange(kernel_map.num_offsets).repeat_interleave(counts)
    return list(zip(offset.tolist(), kernel_map.outputs.tolist(), kernel_map.inputs.tolist()))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_maps_have_the_pairs_of_a_dictionary(data):
    dim = data.draw(st.integers(1, 4))
    low = data.draw(st.sampled_from((-3, 0, FAR - 4)))
    cell = st.tuples(st.integers(0, 1), *[st.integers(low, low + 4)] * dim if dim < 3 else [st.integers(-2, 2)] * dim)
    rows = data.draw(st.lists(cell, unique=True, min_size=1, max_size=20))
    fine = sites_of(torch.tensor(rows, dtype=torch.int32))
    axes = st.lists(st.integers(1, 3), min_size=dim, max_size=dim)
    stride = data.draw(axes) if data.draw(st.booleans()) else 1
    window = Window.of(dim, data.draw(axes), stride, data.draw(axes))
    coarse = [fine, fine.derived(Occupied(window.stride)), fine.derived(Reached(window))]
    for outputs in coarse if set(window.stride) == {1} else coarse[1:]:
        kernel_map = kernel_map_between(fine, outputs, window)
        assert as_triples(kernel_map) == by_hand(fine, outputs, window)
        assert kernel_map_between(fine, outputs, window) is kernel_map
        back = kernel_map.transpose()
        assert as_triples(back) == sorted((k, i, o) for k, o, i in as_triples(kernel_map))


def test_sizes_may_be_tensors_of_one_integer():
    """As one has them of other tensors; what is kept by a size is kept by the number."""
    rows = torch.tensor([[0, 1, 2], [1, 0, 0]])
    sites = sites_of(rows, batch_size=rows[-1, 0] + 1, stride=torch.tensor(2), sizes=torch.tensor([3, 4]))
    assert (sites.batch_size, sites.stride, sites.sizes) == (2, (2, 2), (3, 4))
    assert all(type(size) is int for size in (sites.batch_size, *sites.stride, *sites.sizes))
    assert Window.of(2, torch.tensor(3)) == Window.of(2, 3)


def test_coordinates_beyond_int32_become_int64():
    fine = sites_of(torch.tensor([[0, FAR]], dtype=torch.int32))
    reached = fine.derived(Reached(Window.of(1, 3)))
    assert reached.rows.tolist() == [[0, FAR - 1], [0, FAR], [0, FAR + 1]] and reached.rows.dtype == torch.int64


@pytest.mark.parametrize(
    "rows, given_, error, words",
    [
        (torch.zeros(2, 4), {}, TypeError, "must hold integers, got torch.float32; gsb.voxelize"),
        (torch.zeros(2, 7).long(), {}, TypeError, r"D from 1 to 5, got \(2, 7\)"),
        ([[0, 1, 1], [0, 2, 1], [0, 1, 1]], {}, ValueError, r"coordinates 2 and 0 are equal, \[0, 1, 1\]"),
        ([[0, 1], [-1, 1]], {}, ValueError, r"coordinates\[1\] = \[-1, 1\]: the batch must be not negative"),
        ([[0, 1], [3, 1]], {"batch_size": 3}, ValueError, r"\[3, 1\]: the batch must be in \[0, 3\)"),
        ([[0, 1], [0, 5]], {"sizes": (5,)}, ValueError, r"\[0, 5\]: the coordinate along axis 0 must be in \[0, 5\)"),
        ([[0, -1]], {"sizes": (5,)}, ValueError, r"\[0, -1\]: the coordinate along axis 0 must be in \[0, 5\)"),
        ([[0, 0, 0, 0], [0, FAR, FAR, FAR]], {}, ValueError, r"\[0, 2147483647\] .* 64-bit keys cannot number"),
        ([[0, 1]], {"stride": 0}, ValueError, "stride must be at least 1, got 0"),
        ([[0, 1]], {"stride": (1, 2)}, ValueError, r"an entry for each of 1 axes, got \(1, 2\)"),
        ([[0, 1]], {"batch_size": 1.5}, TypeError, "batch_size must be an int, got 1.5"),
        ([[0, 1]], {"batch_size": torch.tensor(True)}, TypeError, r"batch_size must be an int, got tensor\(True\)"),
        ([[0, 1]], {"sizes": torch.tensor([2.0])}, TypeError, "spatial_shape must be an int, or one for each of 1"),
    ],
)
def test_bad_coordinates_are_quoted(rows, given_, error, words):
    with pytest.raises(error, match=words):
        sites_of(rows, **given_)


def test_a_kernel_that_reaches_beyond_the_keys_is_refused():
    side = 2**15 - 1
    fine = sites_of([[0, 0, 0, 0, 0], [0, side, side, side, side]])
    window = Window.of(4, 3, dilation=side)
    with pytest.raises(ValueError, match="64-bit keys cannot number"):
        kernel_map_between(fine, fine, window)


def test_what_is_kept_does_not_keep_other_sites():
    import gc
    import weakref

    fine = sites_of([[0, 1], [0, 2]])
    coarse = fine.derived(Occupied((2,)))
    kernel_map_between(fine, coarse, Window.of(1, 3, 2)).transpose()
    kernel_map_between(fine, fine, Window.of(1, 3)).transpose()
    dead = weakref.ref(fine)
    gc.disable()
    try:
        del fine
        assert dead() is None
    finally:
        gc.enable()
