"""``gsb.edge_softmax`` and its gradients against torch in float64, and against DGL."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.attention.softmax import run_edge_softmax, run_edge_softmax_backward
from tests.ops.attention_oracle import assert_close, graph_of, rows_of, softmax

INF, NAN = float("inf"), float("nan")


def ends_of(structure, norm_by):
    row, col, (rows, cols) = structure
    return (torch.from_numpy(row), rows) if norm_by == "dst" else (torch.from_numpy(col), cols)


def scores_of(structure, *shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(len(structure[0]), *shape, generator=generator, dtype=torch.float64)
    return scores.to(dtype).requires_grad_()


def assert_right(graph, structure, scores, norm_by):
    actual = gsb.edge_softmax(graph, scores, norm_by)
    exact = scores.detach().double().requires_grad_()
    expected = softmax(exact, *ends_of(structure, norm_by))
    assert actual.dtype == scores.dtype and actual.is_contiguous()
    assert_close(actual, expected, scores.dtype)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    cotangent = cotangent.to(scores.dtype)
    assert_close(
        *torch.autograd.grad(actual, scores, cotangent),
        *torch.autograd.grad(expected, exact, cotangent.double()),
        scores.dtype,
    )


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_every_structure(structure, norm_by):
    assert_right(graph_of(structure), structure, scores_of(structure, 3), norm_by)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (1,), (8,), (2, 35)])
def test_shapes_and_types(zoo, shape, dtype):
    assert_right(graph_of(zoo["random"]), zoo["random"], scores_of(zoo["random"], *shape, dtype=dtype), "dst")


def test_int64_indices(zoo, set_index_bits):
    graph = graph_of(zoo["duplicates"])
    set_index_bits(64)
    wide = graph_of(zoo["duplicates"])
    assert (graph.indices.dtype, wide.indices.dtype) == (torch.int32, torch.int64)
    assert_right(wide, zoo["duplicates"], scores_of(zoo["duplicates"], 3), "dst")


@pytest.mark.parametrize(
    "view", [lambda x: x.t()[:, ::2].t(), lambda x: x[::2], lambda x: x[:1].expand(20, 4), lambda x: x[:20, 1:4]]
)
def test_strided_scores(view):
    structure = rows_of([5, 0, 8, 7])
    base = torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = view(base)[:20].detach()
    assert not scores.is_contiguous()
    assert_right(graph_of(structure), structure, scores.requires_grad_(), "dst")


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_gradients_of_any_order(zoo, norm_by):
    structure = zoo["duplicates"]
    graph = graph_of(structure)
    scores = scores_of(structure, 2)
    assert torch.autograd.gradcheck(lambda x: gsb.edge_softmax(graph, x, norm_by), scores)
    assert torch.autograd.gradgradcheck(lambda x: gsb.edge_softmax(graph, x, norm_by), scores, fast_mode=True)
    # what is to be differentiated again is computed by other operators, whose derivatives say nothing of their values
    cotangent = torch.randn(scores.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    first, again = (
        torch.autograd.grad(gsb.edge_softmax(graph, scores, norm_by), scores, cotangent, create_graph=recorded)[0]
        for recorded in (False, True)
    )
    assert_close(again, first, torch.float64)


ROWS = [
    [-INF, 1, 2],
    [1, -INF],
    [-INF, -INF],
    [-INF],
    [NAN, 1, 2],
    [1, 2, NAN],
    [INF, 1],
    [1, INF, INF],
    [500, -500, 0],
    [-3e38, 3e38],
    [-1e30, -1e30, -1e30],
    [],
    [5],
]


def test_infinities_and_nan():
    structure = rows_of([len(r) for r in ROWS])
    graph = graph_of(structure)
    scores = torch.tensor([x for r in ROWS for x in r]).unsqueeze(1).requires_grad_()
    actual = gsb.edge_softmax(graph, scores)
    exact = scores.detach().double().requires_grad_()
    expected = softmax(exact, *ends_of(structure, "dst"))
    assert expected.isnan().sum() == 14
    assert_close(actual, expected, torch.float32)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    assert_close(
        *torch.autograd.grad(actual, scores, cotangent),
        *torch.autograd.grad(expected, exact, cotangent.double()),
        torch.float32,
    )


def test_the_entry_points_without_autograd(zoo):
    structure = zoo["random"]
    graph = graph_of(structure)
    scores, cotangent = scores_of(structure, 4), scores_of(structure, 4, seed=1).detach()
    out = gsb.edge_softmax(graph, scores)
    (expected,) = torch.autograd.grad(out, scores, cotangent)
    assert torch.equal(run_edge_softmax(graph, scores.detach()), out)
    assert_close(run_edge_softmax_backward(graph, out.detach(), out.detach() * cotangent), expected, torch.float64)


def test_threads_do_not_change_a_bit(zoo):
    structure = zoo["skewed"]
    scores = scores_of(structure, 100, dtype=torch.float32).detach()
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(gsb.edge_softmax(graph_of(structure), scores))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_outputs_are_written_entirely(zoo, poisoned_memory):
    structure = zoo["last_rows_empty"]
    assert_right(graph_of(structure), structure, scores_of(structure, 3), "dst")


def test_against_dgl(zoo):
    dgl = pytest.importorskip("dgl")
    from dgl.nn.functional import edge_softmax

    row, col, shape = structure = zoo["skewed"]
    theirs = dgl.heterograph(
        {("u", "e", "v"): (torch.from_numpy(col), torch.from_numpy(row))}, num_nodes_dict={"u": shape[1], "v": shape[0]}
    )
    scores = scores_of(structure, 4, dtype=torch.float32)
    for norm_by in ("dst", "src"):
        expected = edge_softmax(theirs, scores, norm_by=norm_by)
        actual = gsb.edge_softmax(graph_of(structure), scores, norm_by)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
        cotangent = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(actual, scores, cotangent),
            torch.autograd.grad(expected, scores, cotangent),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_compiled(zoo, norm_by):
    torch._dynamo.reset()
    structure = zoo["random"]
    graph, scores = graph_of(structure), scores_of(structure, 3)
    compiled = torch.compile(lambda x: gsb.edge_softmax(graph, x * 2, norm_by) * 3, fullgraph=True, backend="aot_eager")
    expected = gsb.edge_softmax(graph, scores * 2, norm_by) * 3
    cotangent = torch.randn_like(expected)
    actual = compiled(scores)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, scores, cotangent), torch.autograd.grad(expected, scores, cotangent)
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_the_library_operators(zoo, transposed):
    structure = zoo["duplicates"]
    graph = graph_of(structure)
    arrays = (graph.indptr, graph.indices, graph.edge_ids, graph.shape[1])
    scores, other = scores_of(structure, 2), scores_of(structure, 2, seed=1)
    torch.library.opcheck(torch.ops.gsb.edge_softmax.default, (*arrays, scores, transposed))
    torch.library.opcheck(torch.ops.gsb.edge_softmax_backward.default, (*arrays, scores, other, transposed))
    assert torch.autograd.gradgradcheck(
        lambda x: torch.ops.gsb.edge_softmax(*arrays, x, transposed), scores, fast_mode=True
    )


GRAPH = gsb.Graph.from_coo(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), (2, 2))


@pytest.mark.parametrize(
    "scores, norm_by, error, text",
    [
        (torch.zeros(2, 4), "dst", ValueError, "edge_softmax: scores must have 3 rows, one per edge of the graph, got"),
        (torch.zeros(()), "dst", ValueError, "edge_softmax: scores must have a row per edge"),
        (torch.zeros(3, 4), "both", ValueError, "edge_softmax: norm_by must be 'dst' or 'src', got 'both'"),
        (
            torch.zeros(3, dtype=torch.long),
            "dst",
            TypeError,
            "edge_softmax: scores must be float32, .* got torch.int64",
        ),
        ([1.0, 2.0, 3.0], "dst", TypeError, "edge_softmax: scores must be a torch tensor, got list"),
    ],
)
def test_errors(scores, norm_by, error, text):
    with pytest.raises(error, match=text):
        gsb.edge_softmax(GRAPH, scores, norm_by)
    with pytest.raises(TypeError, match="graph must be a gsb.Graph"):
        gsb.edge_softmax(None, scores, norm_by)
