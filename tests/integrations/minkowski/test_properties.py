"""Unions, pruning, interpolation, strides and quantisation of random sites, as properties."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import gnn_sparse_backend as gsb

from . import oracle
from .oracle import rows_of, same, same_gradients, sites_in

COUNTS, SIDES = st.integers(0, 12), st.integers(1, 3)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@contextlib.contextmanager
def engine():
    with gsb.enabled("MinkowskiEngine"):
        import MinkowskiEngine

        yield MinkowskiEngine


@st.composite
def sites(draw, dim, least=0):
    """(N, 1 + dim) int32, none twice."""
    row = st.tuples(st.integers(0, 1), *[st.integers(-3, 3)] * dim)
    rows = draw(st.lists(row, min_size=least, max_size=12, unique=True))
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 1 + dim)


@st.composite
def several(draw, count, least=1):
    dim = draw(st.integers(1, 3))
    return [draw(sites(dim, least)) for _ in range(count)]


def tensors(ME, coordinates, manager=None):
    found = []
    for rows in coordinates:
        features = torch.randn(len(rows), 2, dtype=torch.float64, requires_grad=True)
        found.append(ME.SparseTensor(features, rows, coordinate_manager=manager))
        manager = found[0].coordinate_manager
    return found


@quick
@given(several(3))
def test_union(coordinates):
    with engine() as ME:
        every = tensors(ME, coordinates)
        y = ME.MinkowskiUnion()(*every)
        assert sites_in(y.C) == set.union(*(sites_in(x.C) for x in every))
        wanted = torch.zeros(len(y), 2).double()
        for x in every:
            at = torch.tensor([rows_of(y.C)[site] for site in rows_of(x.C)], dtype=torch.long)
            wanted = wanted.index_add(0, at, x.F)
        same_gradients(y.F, wanted, [x.F for x in every])


@quick
@given(several(2), st.sampled_from(["add", "sub", "mul", "truediv"]), st.booleans())
def test_arithmetic_of_two_tensors(coordinates, name, in_place):
    with engine() as ME:
        a, b = tensors(ME, coordinates)
        fa, fb, of_a, of_b = a.F, b.F, rows_of(a.C), rows_of(b.C)
        before = a
        found = getattr(a, f"__{'i' if in_place else ''}{name}__")(b)
        assert (found is before) is in_place and sites_in(found.C) == {*of_a, *of_b}
        compute, zero = getattr(torch.Tensor, f"__{name}__"), torch.zeros(2).double()
        rows = []
        for site in rows_of(found.C):
            left = fa[of_a[site]] if site in of_a else zero
            rows.append(compute(left, fb[of_b[site]]) if site in of_b else left)
        same_gradients(found.F, torch.stack(rows), [fa, fb])


@quick
@given(several(1, 0), st.data())
def test_pruning_and_the_way_back(coordinates, data):
    with engine() as ME:
        (x,) = tensors(ME, coordinates)
        mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))), dtype=torch.bool)
        y = ME.MinkowskiPruning()(x, mask)
        assert torch.equal(y.C, x.C[mask])
        same_gradients(y.F, x.F[mask], [x.F])
        down = ME.MinkowskiAvgPooling(2, 2, dimension=x.D)(y)
        up = ME.MinkowskiPoolingTranspose(2, 2, dimension=x.D)(down)
        assert torch.equal(up.C, x.C)  # the sites of the finer grid that were given


@quick
@given(several(1), st.sampled_from([1, 2]), st.lists(st.tuples(*[st.floats(-4, 4, width=32)] * 3), max_size=6))
def test_interpolation(coordinates, stride, points):
    with engine() as ME:
        rows = coordinates[0] * torch.tensor([1] + [stride] * (coordinates[0].shape[1] - 1), dtype=torch.int32)
        features = torch.randn(len(rows), 2, dtype=torch.float64, requires_grad=True)
        x = ME.SparseTensor(features, rows, tensor_stride=stride)
        at = torch.tensor([(0, *point[: x.D]) for point in points], dtype=torch.float64).reshape(-1, 1 + x.D)
        at[:, 0] = torch.arange(len(at)) % 2
        wanted = oracle.interpolated(x.F, x.C, at, x.tensor_stride)
        found, (of, to), weights = ME.MinkowskiInterpolation(return_kernel_map=True, return_weights=True)(x, at)
        same_gradients(found, wanted, [features])
        same(x.features_at_coordinates(at), wanted)
        same(torch.zeros_like(wanted).index_add(0, to.long(), weights[:, None] * x.F[of.long()]), wanted)


@quick
@given(several(1), st.data())
def test_strides_and_the_maps_between_them(coordinates, data):
    with engine() as ME:
        (x,) = tensors(ME, coordinates)
        steps = data.draw(st.lists(SIDES, min_size=x.D, max_size=x.D))
        manager = x.coordinate_manager
        key = manager.stride(x.coordinate_map_key, steps)
        assert sites_in(manager.get_coordinates(key)) == oracle.strided(x.C, steps)
        rows, cells = manager.stride_map(x.coordinate_map_key, key)
        assert sorted(rows.tolist()) == list(range(len(x)))
        steps = torch.tensor([1, *steps])
        assert torch.equal(x.C[rows].div(steps, rounding_mode="floor") * steps, manager.get_coordinates(key)[cells])


@quick
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 1), st.integers(-1, 1)), min_size=1, max_size=20))
@pytest.mark.parametrize("mode", ["RANDOM_SUBSAMPLE", "UNWEIGHTED_AVERAGE", "UNWEIGHTED_SUM", "MAX_POOL"])
def test_quantisation(mode, rows):
    with engine() as ME:
        coordinates = torch.tensor(rows, dtype=torch.int32)
        features = torch.randn(len(rows), 2, dtype=torch.float64, requires_grad=True)
        x = ME.SparseTensor(features, coordinates, quantization_mode=ME.SparseTensorQuantizationMode[mode])
        firsts = list(dict.fromkeys(rows))
        assert [tuple(site) for site in x.C.tolist()] == firsts
        assert x.unique_index.tolist() == [rows.index(site) for site in firsts]
        assert x.inverse_mapping.tolist() == [firsts.index(site) for site in rows]
        groups = [features[[at for at, row in enumerate(rows) if row == site]] for site in firsts]
        reduced = {
            "RANDOM_SUBSAMPLE": lambda each: each[0],
            "UNWEIGHTED_AVERAGE": lambda each: each.mean(0),
            "UNWEIGHTED_SUM": lambda each: each.sum(0),
            "MAX_POOL": lambda each: each.amax(0),
        }
        same_gradients(x.F, torch.stack([reduced[mode](each) for each in groups]), [features])


@quick
@given(several(1), st.sampled_from([1, 3, 5]))
def test_hyper_cross(coordinates, size):
    with engine() as ME:
        (x,) = tensors(ME, coordinates)
        kernel = ME.KernelGenerator(size, region_type=ME.RegionType.HYPER_CROSS, dimension=x.D)
        layer = ME.MinkowskiConvolution(2, 3, kernel_generator=kernel, dimension=x.D).double()
        offsets = oracle.cross([size] * x.D, [1] * x.D, [1] * x.D)
        weight = layer.kernel if layer.kernel.dim() == 3 else layer.kernel[None]
        wanted = oracle.convolved(x.F, weight, oracle.pairs(x.C, x.C, offsets), len(x))
        same_gradients(layer(x).F, wanted, [x.F, layer.kernel])
