"""``gsb.sparse_conv`` against sums over pairs in float64, values and gradients of any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb

INPUTS, OUTPUTS, OFFSETS = 20, 15, 5
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def some_map(dtype: torch.dtype = torch.int64, seed: int = 0) -> tuple[gsb.KernelMap, list]:
    """Offsets of many pairs, of none and of one, in no order; rows that meet nothing."""
    rng = np.random.default_rng(seed)
    pairs = [(rng.permutation(INPUTS - 1)[:n], rng.permutation(OUTPUTS - 2)[:n]) for n in (9, 0, 1, 13, 4)]
    inputs, outputs = (torch.tensor(np.concatenate(each), dtype=dtype) for each in zip(*pairs))
    indptr = torch.tensor(np.cumsum([0, *(len(a) for a, _ in pairs)]), dtype=dtype)
    return gsb.KernelMap.from_pairs(inputs, outputs, indptr, (OUTPUTS, INPUTS)), pairs


def oracle(pairs, features, weight, bias, groups):
    """Pair by pair, in float64."""
    features, weight = features.double(), weight.double()
    out = torch.zeros(OUTPUTS, weight.shape[2], dtype=torch.float64)
    apart, blocks = features.unflatten(1, (groups, -1)), weight.unflatten(2, (groups, -1))
    for k, (inputs, outputs) in enumerate(pairs):
        made = torch.einsum("pgi,igo->pgo", apart[torch.tensor(inputs)], blocks[k]).flatten(1)
        out = out.index_add(0, torch.tensor(outputs), made)
    return out if bias is None else out + bias.double()


def operands(groups: int, dtype=torch.float64, width: int = 4, out: int = 8):
    torch.manual_seed(groups)
    shapes = (INPUTS, width), (OFFSETS, width // groups, out), (out,)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("index", (torch.int32, torch.int64))
def test_values_and_gradients(dtype, index):
    kernel_map, pairs = some_map(index)
    for groups in (1, 4) if dtype is torch.float32 else (1,):
        given = operands(groups, dtype)
        found, wanted = gsb.sparse_conv(given[0], given[1], kernel_map, given[2], groups), oracle(pairs, *given, groups)
        assert found.dtype == dtype and found.is_contiguous()
        close = {"rtol": TOLERANCE[dtype], "atol": 8 * TOLERANCE[dtype]}
        torch.testing.assert_close(found.double(), wanted, **close)
        cotangent = torch.randn_like(wanted)
        for a, b in zip(
            torch.autograd.grad(found, given, cotangent.to(dtype)),
            torch.autograd.grad(wanted, given, cotangent.to(dtype).double()),
            strict=True,
        ):
            torch.testing.assert_close(a.double(), b.double(), **close)


@pytest.mark.parametrize("groups", (1, 2))
def test_derivatives_of_any_order(groups):
    kernel_map, _ = some_map()

    def function(features, weight, bias):
        return gsb.sparse_conv(features, weight, kernel_map, bias, groups)

    given = operands(groups)
    assert gradcheck(function, given)
    assert gradgradcheck(function, given, fast_mode=True)


def test_traced_without_a_graph_break():
    kernel_map, pairs = some_map()
    given = operands(2, torch.float64)
    compiled = torch.compile(
        lambda features, weight, bias: gsb.sparse_conv(features, weight, kernel_map, bias, 2),
        fullgraph=True,
        backend="aot_eager",
    )
    found, wanted = compiled(*given), oracle(pairs, *given, 2)
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, given, cotangent), torch.autograd.grad(wanted, given, cotangent)
    )


def test_autocast_casts_the_operands():
    kernel_map, pairs = some_map()
    given = operands(1, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = gsb.sparse_conv(given[0], given[1], kernel_map, given[2])
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), oracle(pairs, *(x.bfloat16() for x in given), 1), rtol=3e-2, atol=0.2)


def test_strides_infinities_and_no_pairs():
    kernel_map, pairs = some_map()
    features, weight, _ = operands(1)
    columns = torch.randn(4, 2 * INPUTS, dtype=torch.float64).t()[::2]
    apart = weight.detach().transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(gsb.sparse_conv(columns, apart, kernel_map), oracle(pairs, columns, apart, None, 1))
    broken = features.detach().clone()
    broken[pairs[2][0][0]] = torch.inf
    broken[pairs[0][0][0]] = torch.nan
    found = gsb.sparse_conv(broken, weight, kernel_map)
    assert torch.equal(found.isfinite(), oracle(pairs, broken, weight, None, 1).isfinite())
    assert not found[OUTPUTS - 1].any()  # which meets nothing
    none = gsb.KernelMap.from_pairs(*(torch.zeros(n, dtype=torch.long) for n in (0, 0, 4)), (2, 0))
    out = gsb.sparse_conv(torch.ones(0, 4), torch.ones(3, 4, 8), none, torch.full((8,), 3.0))
    assert out.shape == (2, 8) and bool((out == 3).all())


def test_the_same_bits_at_every_run_and_for_any_threads():
    kernel_map, _ = some_map()
    given = operands(1, torch.float32)
    threads = torch.get_num_threads()

    def run(count):
        torch.set_num_threads(count)
        out = gsb.sparse_conv(given[0], given[1], kernel_map, given[2])
        return out, *torch.autograd.grad(out.square().sum(), given)

    try:
        first = run(1)
        assert all(torch.equal(a, b) for count in (1, 2) for a, b in zip(first, run(count)))
    finally:
        torch.set_num_threads(threads)


def test_transposes_tables_and_graphs():
    kernel_map, pairs = some_map()
    back = kernel_map.transpose()
    assert back.transpose() is kernel_map and back.shape == (INPUTS, OUTPUTS)
    for k, (inputs, outputs) in enumerate(pairs):
        at = slice(*kernel_map.indptr[k : k + 2].tolist())
        there = sorted(zip(outputs.tolist(), inputs.tolist()))
        assert list(zip(kernel_map.outputs[at].tolist(), kernel_map.inputs[at].tolist())) == there
        turned = sorted(zip(inputs.tolist(), outputs.tolist()))
        assert list(zip(back.outputs[at].tolist(), back.inputs[at].tolist())) == turned
    from gnn_sparse_backend.structures.kernel_map import GraphOf, NeighbourTable, RelGraphOf

    table = kernel_map.derived(NeighbourTable())
    assert table.shape == (OUTPUTS, OFFSETS) and int((table >= 0).sum()) == kernel_map.num_pairs
    assert all(int(table[o, k]) == i for k, (inputs, outputs) in enumerate(pairs) for i, o in zip(inputs, outputs))
    assert kernel_map.derived(GraphOf()).num_edges == kernel_map.derived(RelGraphOf()).num_edges == kernel_map.num_pairs


BAD_MAPS = {
    "int": ((torch.zeros(2), torch.zeros(2).long(), torch.tensor([0, 2])), TypeError, "inputs must hold integers"),
    "length": (([0, 1], [0], [0, 1]), ValueError, "one entry per pair, got 2 and 1"),
    "ptr": (([0], [0], [0, 2]), ValueError, "indptr must end with the number of pairs 1, got 2"),
    "range": (([7], [0], [0, 1]), ValueError, r"inputs\[0\] = 7 is out of range"),
    "output twice": (([0, 1], [1, 1], [0, 2]), ValueError, r"outputs\[1\] = 1 is there twice at offset 0"),
    "input twice": (([1, 1], [0, 1], [0, 0, 2]), ValueError, r"inputs\[1\] = 1 is there twice at offset 1"),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_bad_maps_are_quoted(name):
    arrays, error, words = BAD_MAPS[name]
    with pytest.raises(error, match=words):
        gsb.KernelMap.from_pairs(*(torch.as_tensor(a) for a in arrays), (2, 3))


def test_bad_operands_are_quoted():
    kernel_map, _ = some_map()
    x, w = torch.ones(INPUTS, 4), torch.ones(OFFSETS, 4, 8)
    for arguments, error, words in (
        ((x, w, None), TypeError, "kernel_map must be a gsb.KernelMap, got NoneType"),
        ((x[1:], w, kernel_map), ValueError, r"with 20 inputs, .* got \(19, 4\)"),
        ((x, w[1:], kernel_map), ValueError, r"with 5 offsets, .* got \(4, 4, 8\)"),
        ((x, w, kernel_map, None, 3), ValueError, "groups must divide 4 and 8 channels, got 3"),
        ((x, w, kernel_map, None, 2), ValueError, r"want weight of shape \(5, 2, C_out\), got \(5, 4, 8\)"),
        ((x, w, kernel_map, torch.ones(4)), ValueError, r"bias must have shape \(8,\), .* got \(4,\)"),
        ((x, w.double(), kernel_map), TypeError, "features of torch.float32, weight of torch.float64"),
        ((x.long(), w, kernel_map), TypeError, "features must be float32, .* got torch.int64"),
    ):
        with pytest.raises(error, match=words):
            gsb.sparse_conv(*arguments)
