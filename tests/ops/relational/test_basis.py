"""``gsb.rgms`` with matrices that are combinations of bases: values, gradients, and what is held in memory for them."""

import importlib

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.relational.operators import traced_rel_graph
from gnn_sparse_backend.planner.cpu import relational as rules
from gnn_sparse_backend.structures.relational.parts import relation_parts
from tests.covering import covering
from tests.ops.allocations import largest_of_step
from tests.ops.message_oracle import DTYPES, assert_close_to, case_name, values
from tests.ops.relational.test_rgms import COMPILER, make, oracle, triples

INDUCTOR = pytest.param(
    "inductor", marks=[pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler")]
)
PARTS = {"one relation": 1, "some relations": 300, "whole": 1 << 20}
"""Bytes of matrices at a time.

There are never fewer than bases, so bases are one where each relation is to come alone.
"""


def mixed(comp, bases):
    return torch.einsum("rb,bio->rio", comp, bases)


def exact(x, comp, bases, arrays, a=None, reduce="sum"):
    return oracle(arrays, x, mixed(comp, bases), a, reduce)


def operands(arrays, features=(5, 4), count=3, weighted=True):
    inputs = [values(1, arrays[3][1], features[0]), values(2, arrays[4], count), values(3, count, *features)]
    return inputs + ([values(4, len(arrays[0]))] if weighted else [])


@pytest.fixture
def by_parts(monkeypatch):
    """A function: matrices are made in these parts from now on."""
    return lambda parts: monkeypatch.setattr(rules, "MATRIX_BYTES", PARTS[parts])


@pytest.fixture
def a_relation_at_a_time(by_parts):
    by_parts("one relation")


CASES = covering(
    {
        "name": ["mixed", "many_relations", "sparse", "one_edge"],
        "features": [(1, 1), (5, 4), (7, 70)],
        "count": [1, 3],
        "weighted": [False, True],
        "reduce": ["sum", "mean"],
        "dtype": DTYPES,
        "bits": [32, 64],
        "parts": list(PARTS),
    },
    as_one=True,
)


@pytest.mark.short(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, by_parts, set_index_bits, poisoned_memory):
    name, features, count, weighted, reduce, dtype, bits, parts = case
    by_parts(parts)
    set_index_bits(bits)
    arrays = triples(name)
    rel, given = make(arrays), operands(arrays, features, count, weighted)
    leaves = [y.to(dtype).requires_grad_() for y in given]
    inputs = [y.clone().requires_grad_() for y in given]
    sizes = [y.abs().requires_grad_() for y in given]
    actual = gsb.rgms(rel, leaves[0], leaves[1:3], *leaves[3:], reduce=reduce)
    expected, bound = (exact(*y[:3], arrays, *y[3:], reduce=reduce) for y in (inputs, sizes))
    # a matrix is rounded before it is used, and so are the weights of a mean
    assert_close_to(actual, expected, bound, 3)
    assert actual.dtype == dtype and actual.is_contiguous()
    cotangent = values(9, *expected.shape)
    for found, right, most in zip(
        torch.autograd.grad(actual, leaves, cotangent.to(dtype)),
        torch.autograd.grad(expected, inputs, cotangent),
        torch.autograd.grad(bound, sizes, cotangent.abs()),
    ):
        assert found.dtype == dtype and found.shape == right.shape
        assert_close_to(found, right, most, 4)


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "parts, reduce, recorded",
    [
        ("one relation", "sum", "eager"),
        ("one relation", "mean", "torch.library"),
        ("whole", "sum", "torch.library"),
        ("whole", "mean", "eager"),
    ],
)
def test_gradcheck(parts, reduce, recorded, by_parts, monkeypatch):
    by_parts(parts)
    if recorded == "torch.library":
        monkeypatch.setattr(
            importlib.import_module("gnn_sparse_backend.ops.relational.api"), "is_plain", lambda *operands: False
        )
    arrays = triples("mixed")
    small = tuple(y[:12] for y in arrays[:3]) + arrays[3:]
    rel, inputs = make(small), [y.requires_grad_() for y in operands(small, (2, 3), 2)]

    def function(x, comp, bases, a):
        return gsb.rgms(rel, x, (comp, bases), a, reduce)

    assert len(relation_parts(rel, rules.relations_at_a_time(2, 2, 3, 8))) == (2 if parts == "one relation" else 1)
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


def test_operators_of_torch_library(a_relation_at_a_time):
    arrays = triples("mixed")
    rel, (x, comp, bases, a) = make(arrays), (y.requires_grad_() for y in operands(arrays, count=2))
    g = values(5, arrays[3][0], 4).requires_grad_()
    head = traced_rel_graph(rel).arguments
    torch.library.opcheck(torch.ops.gsb.rgms_basis_product.default, (*head, x, comp, bases, a, True, False))
    torch.library.opcheck(torch.ops.gsb.rgms_basis_sums.default, (*head, x, comp, bases, a, g, True, False))
    torch.library.opcheck(torch.ops.gsb.rgms_basis_dot.default, (*head, x, comp, bases, g, True, False))
    with pytest.raises(ValueError, match="do not go with RelGraph"):
        torch.ops.gsb.rgms_basis_product(*head, x, comp[1:], bases, a, True, False)
    with pytest.raises(ValueError, match=r"comp must have shape \(relations, bases\) = \(4, 2\), got \(3, 2\)"):
        gsb.rgms(rel, x, (comp[1:], bases))


def test_parts_are_the_relations_that_have_edges():
    """As many in each as can be, once; parts keep edges in order, and know them by number."""
    relation = torch.tensor([7, 2, 2, 900, 7, 40, 2])
    node = torch.arange(7)
    rel = gsb.RelGraph.from_triples(node, node.flip(0), relation, (7, 7), 1000)
    parts = relation_parts(rel, 2)
    assert [part.relations.tolist() for part in parts] == [[2, 7], [40, 900]]
    assert [part.edges.tolist() for part in parts] == [[1, 2, 6, 0, 4], [5, 3]]
    for part in parts:
        assert torch.equal(part.graph.source, rel.source[part.edges]) and torch.equal(
            part.relations[part.graph.relation.long()], rel.relation[part.edges].long()
        )
    assert relation_parts(rel, 2) is parts and relation_parts(rel, 4)[0].graph.num_edges == 7
    (whole,) = relation_parts(rel, 1000)
    assert whole.graph is rel and whole.edges is None


@pytest.mark.parametrize("bases, fits", [(2, rules.MATRIX_BYTES // 4096), (5000, 5000)])
def test_matrices_at_a_time(bases, fits):
    """What fits the bytes, but never fewer than bases, nor none."""
    assert rules.relations_at_a_time(bases, 32, 32, 4) == fits
    assert rules.relations_at_a_time(1, 10_000, 10_000, 4) == 1


@pytest.mark.parametrize("reduce, edges", [("sum", 0), ("mean", 0), ("sum", 90)])
def test_nothing_to_multiply(reduce, edges, a_relation_at_a_time):
    """No edges, no bases, features of width zero."""
    arrays = tuple(y[:edges] for y in triples("mixed")[:3]) + triples("mixed")[3:]
    rel = make(arrays)
    for features, count in (((3, 2), 2), ((3, 2), 0), ((0, 2), 2), ((3, 0), 2)):
        inputs = [y.requires_grad_() for y in operands(arrays, features, count, False)]
        out = gsb.rgms(rel, inputs[0], inputs[1:], reduce=reduce)
        assert (edges and 0 not in (count, *features)) or torch.equal(
            out, torch.zeros(11, features[1], dtype=torch.float64)
        )
        assert [g.shape for g in torch.autograd.grad(out.sum(), inputs)] == [y.shape for y in inputs]


def test_what_is_not_finite_reaches_its_neighbours_alone(a_relation_at_a_time):
    arrays = triples("sparse")
    _, destination, relation, shape, _ = arrays
    x, comp, bases = operands(arrays, weighted=False, count=1)
    comp[relation[0]] = float("nan")
    out = gsb.rgms(make(arrays), x, (comp, bases))
    reached = torch.zeros(shape[0], dtype=torch.bool)
    reached[destination[relation == relation[0]]] = True
    assert out[reached].isnan().all() and out[~reached].isfinite().all()


def test_autocast(a_relation_at_a_time):
    """As a product of matrices forward; what was made outside keeps its type in a backward pass inside."""
    arrays = triples("mixed")
    rel, given = make(arrays), [y.float().requires_grad_() for y in operands(arrays, count=1)]
    layer = lambda x, comp, bases, a: gsb.rgms(rel, x, (comp, bases), a)
    expected = torch.autograd.grad(layer(*given).sum(), given)
    out = layer(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(*given).dtype == torch.bfloat16
        found = torch.autograd.grad(out.sum(), given)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("parts", ["one relation", "whole"])
@pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])
def test_compiled(backend, parts, by_parts):
    torch._dynamo.reset()
    by_parts(parts)
    arrays = triples("mixed")
    rel, inputs = make(arrays), [y.requires_grad_() for y in operands(arrays, count=1)]
    layer = lambda x, comp, bases, a: torch.relu(gsb.rgms(rel, x * 2, (comp, bases), a, "mean")).sum(1)
    expected = layer(*inputs)
    actual = torch.compile(layer, fullgraph=True, backend=backend)(*inputs)
    cotangent = values(9, *expected.shape)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent)
    )


def test_on_a_gpu(a_relation_at_a_time, serial_gpu):
    """The way to a GPU adds the same parts up."""
    arrays = triples("mixed")
    rel, inputs = make(arrays), [y.requires_grad_() for y in operands(arrays, count=1)]
    found, right = (
        gsb.rgms(rel, inputs[0], inputs[1:3], inputs[3], "mean"),
        exact(*inputs[:3], arrays, inputs[3], "mean"),
    )
    torch.testing.assert_close(found, right)
    torch.testing.assert_close(
        torch.autograd.grad(found.sin().sum(), inputs), torch.autograd.grad(right.sin().sum(), inputs)
    )
    assert serial_gpu


def test_the_same_bits_for_any_number_of_threads(a_relation_at_a_time):
    arrays = triples("many_relations")
    rel, inputs = make(arrays), [y.float().requires_grad_() for y in operands(arrays, (24, 40))]
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            out = gsb.rgms(rel, inputs[0], inputs[1:3], inputs[3], "mean")
            found.append([out, *torch.autograd.grad(out.sum(), inputs)])
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("backend", ["eager", INDUCTOR])
def test_nothing_of_the_size_of_all_matrices_or_of_the_edges_by_a_width(backend):
    """1,000 relations of 30 bases: with the structure, what is derived of it and both passes, compiled or not."""
    torch._dynamo.reset()
    nodes, edges, relations, bases, width = 2_000, 120_000, 1_000, 30, 64
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(0, nodes, (edges,), generator=generator) for _ in range(2)]
    relation = torch.randint(0, relations, (edges,), generator=generator)
    rel = gsb.RelGraph.from_triples(*ends, relation, (nodes, nodes), relations)
    inputs = [
        torch.randn(*shape, generator=generator).requires_grad_()
        for shape in ((nodes, width), (relations, bases), (bases, width, width), (edges,))
    ]

    def layer(x, comp, bases, a):
        return gsb.rgms(rel, x, (comp, bases), a, "mean")

    def made(x, comp, bases, a):
        return gsb.rgms(rel, x, mixed(comp, bases), a, "mean")

    if backend != "eager":
        layer = torch.compile(layer, fullgraph=True, backend=backend)
        made = torch.compile(made, fullgraph=True, backend=backend)
    least = 4 * min(relations * width * width, edges * width, edges * bases)
    found = largest_of_step(layer, inputs)
    assert rules.MATRIX_BYTES <= found < 1.2 * rules.MATRIX_BYTES < 0.75 * least
    # the other way is seen
    assert largest_of_step(made, inputs) >= 4 * relations * width * width
