"""Coordinates: packing, order, and what is refused; kernel maps against a dictionary of sites."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.structures.coordinates import Coordinates, Occupied, Reached, Window, kernel_map_between
from gnn_sparse_backend.structures.coordinates.packing import Folded, Packing, distinct, in_order, packing_of
from gnn_sparse_backend.structures.coordinates.pairs import SHARED

FAR = 2**31 - 1


def sites_of(rows, **given) -> Coordinates:
    return Coordinates.of(torch.as_tensor(rows), **given)


@given(st.lists(st.tuples(st.integers(0, 3), *[st.integers(-(2**20), 2**20)] * 2), min_size=1, max_size=20))
@settings(deadline=None)
def test_keys_are_in_the_order_of_rows(rows):
    bounds = ((0, 3), (-(2**20), 2**20), (-(2**20), 2**20))
    given_ = torch.tensor(rows)
    folded = packing_of(((0, 2**62), *bounds[1:]), lambda: given_.unbind(1))
    assert isinstance(folded, Folded)
    for packing in (Packing(bounds), folded):
        for dtype in (torch.int32, torch.int64):
            keys, rising = packing.pack(given_.to(dtype))
            assert rising == (rows == sorted(set(rows))) and int(keys[-1]) > int(keys[:-1].max())
            assert torch.equal(packing.unpack(keys[:-1], dtype), given_.to(dtype))
            assert packing.unpack(distinct(keys[:-1], packing.bits)[:-1]).tolist() == [
                list(r) for r in sorted(set(rows))
            ]


def test_keys_are_sorted_as_torch_sorts_them():
    generator = torch.Generator().manual_seed(0)
    for bits in (1, 11, 12, 62):  # an odd and an even number of digits
        keys = torch.randint(2**bits, (1000,), generator=generator)
        ascending, order, equal = in_order(keys, bits)
        expected = keys.sort(stable=True)
        assert torch.equal(ascending[:-1], expected.values) and torch.equal(order, expected.indices)
        assert torch.equal(distinct(keys, bits)[:-1], keys.unique())
        again = (expected.values[1:] == expected.values[:-1]).nonzero()
        assert equal == (int(again[0]) if len(again) else None)


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


def check_pairs(fine: Coordinates, outputs: Coordinates, window: Window) -> None:
    kernel_map = kernel_map_between(fine, outputs, window)
    assert as_triples(kernel_map) == by_hand(fine, outputs, window)
    assert kernel_map_between(fine, outputs, window) is kernel_map
    back = kernel_map.transpose()
    assert as_triples(back) == sorted((k, i, o) for k, o, i in as_triples(kernel_map))


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_maps_have_the_pairs_of_a_dictionary(data):
    """Sites near and far apart, in order and not, of any number of axes; any kernel, symmetric or not."""
    dim = data.draw(st.integers(1, 4))
    low, dtype = data.draw(st.sampled_from(((-3, torch.int32), (FAR - 4, torch.int32), (-(2**40), torch.int64))))
    coordinate = st.integers(low, low + 4)
    if data.draw(st.booleans()):  # with two axes and more, boxes are too wide for keys
        coordinate |= st.integers(-low, 4 - low) if dtype is torch.int64 else st.integers(-FAR, 3 - FAR)
    cell = st.tuples(st.integers(0, 1), *[coordinate] * dim)
    rows = data.draw(st.lists(cell, unique=True, min_size=1, max_size=20))
    fine = sites_of(torch.tensor(sorted(rows) if data.draw(st.booleans()) else rows, dtype=dtype))
    axes = st.lists(st.integers(1, 3), min_size=dim, max_size=dim)
    stride = data.draw(axes) if data.draw(st.booleans()) else 1
    padding = data.draw(st.none() | st.integers(0, 3))
    window = Window.of(dim, data.draw(axes), stride, data.draw(axes), padding)
    coarse = [fine.derived(Occupied(window.stride))]
    cells = {(batch, *(x // s for x, s in zip(at, window.stride))) for batch, *at in rows}
    assert coarse[0].rows.tolist() == [list(row) for row in sorted(cells)]
    if set(window.stride) == {1}:
        coarse.append(fine)
    if max(high - low for low, high in fine.bounds) < 2**14:
        coarse.append(fine.derived(Reached(window)))
        assert coarse[-1].rows.tolist() == [list(row) for row in reached_by_hand(rows, window)]
    for outputs in coarse:
        check_pairs(fine, outputs, window)


def reached_by_hand(rows, window: Window):
    """All sites of which the kernel covers one of these."""
    found = set()
    for offset in itertools.product(*map(range, window.kernel)):
        for batch, *at in rows:
            ahead = [x + b - d * k for x, b, d, k in zip(at, window.before, window.dilation, offset)]
            if not any(x % s for x, s in zip(ahead, window.stride)):
                found.add((batch, *(x // s for x, s in zip(ahead, window.stride))))
    return sorted(found)


@pytest.mark.parametrize("ordered", (True, False))
def test_threads_share_the_sites_of_large_maps(ordered):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 24, (9000, 4), generator=generator).clamp(min=1).unique(dim=0)
    assert 8 * len(rows) > SHARED  # in lines of offsets and merges of two lists
    fine = sites_of(rows if ordered else rows[torch.randperm(len(rows), generator=generator)])
    check_pairs(fine, fine, Window.of(3, 3))
    window = Window.of(3, 2, 2)
    check_pairs(fine, fine.derived(Occupied(window.stride)), window)


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


def test_what_no_key_can_number_is_refused():
    side = 2**15 - 1
    fine = sites_of([[0, 0, 0, 0, 0], [0, side, side, side, side]])
    with pytest.raises(ValueError, match="64-bit keys cannot number"):
        fine.derived(Reached(Window.of(4, 3, dilation=2 * side)))
    # as many values along each of four axes
    rows = torch.cat([torch.zeros(2**16, 1), *(torch.randperm(2**16)[:, None] for _ in range(4))], 1)
    with pytest.raises(ValueError, match=r"64-bit keys cannot number: at most 2\*\*62; leave out far points"):
        sites_of((rows * 2**20).long())


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
