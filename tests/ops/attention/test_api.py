"""The layers of graph attention as functions: what they compute, under compilers and autocast, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import leaky_relu

import gnn_sparse_backend as gsb
from tests.ops.attention_oracle import assert_close, cases, cotangent_for, graph_of, softmax


def layer_operands(structure, heads=(2,), width=4, dtype=torch.float64):
    row, _, (rows, cols) = structure
    shapes = [
        (rows, *heads, width),
        (cols, *heads, width),
        (cols, *heads, 3),
        (len(row), *heads),
        (rows, *heads),
        (cols, *heads),
        heads + (width,),
    ]
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("heads", [(2,), ()])
@pytest.mark.parametrize("weighted", [False, True])
def test_layers_are_what_they_say(zoo, heads, weighted):
    row, col, shape = zoo["random"]
    graph, ends, sources = graph_of(zoo["random"]), torch.from_numpy(row), torch.from_numpy(col)
    query, key, value, at_edges, at_rows, at_columns, att = layer_operands(zoo["random"], heads)
    extra = {"edge_weight": at_edges} if weighted else {}

    def attended(scores, value):
        weights = softmax(scores, ends, shape[0]) * (at_edges if weighted else 1)
        out = value.new_zeros(shape[0], *value.shape[1:])
        return out.index_add(0, ends, weights.unsqueeze(-1) * value[sources])

    dots = (query[ends] * key[sources]).sum(-1)
    sums = at_rows[ends] + at_columns[sources] + at_edges
    looks = (leaky_relu(query[ends] + key[sources], 0.2) * att).sum(-1)
    for actual, expected in [
        (gsb.attention(graph, query, key, value, **extra), attended(dots / 2, value)),
        (gsb.attention(graph, query, key, value, 1, **extra), attended(dots, value)),
        (
            gsb.gat_attention(graph, at_rows, at_columns, value, edge_scores=at_edges, **extra),
            attended(leaky_relu(sums, 0.2), value),
        ),
        (
            gsb.gat_attention(graph, at_rows, at_columns, value, 0.5, **extra),
            attended(leaky_relu(at_rows[ends] + at_columns[sources], 0.5), value),
        ),
        (gsb.gatv2_attention(graph, query, key, att, value=value, **extra), attended(looks, value)),
        (gsb.gatv2_attention(graph, query, key, att, **extra), attended(looks, key)),
    ]:
        assert_close(actual, expected, torch.float64)


def layers(graph, query, key, value, at_edges, at_rows, at_columns, att):
    return (
        gsb.attention(graph, query * 2, key, value),
        gsb.gat_attention(graph, at_rows, at_columns, value, 0.1),
        gsb.gatv2_attention(graph, query, key, att, value=value, edge_weight=at_edges),
    )


@pytest.mark.slow
def test_compiled(zoo):
    torch._dynamo.reset()
    compiled = torch.compile(layers, fullgraph=True, backend="aot_eager")
    for name in ("random", "skewed", "no_edges"):
        operands = layer_operands(zoo[name])
        graph = graph_of(zoo[name])
        expected, actual = layers(graph, *operands), compiled(graph, *operands)
        torch.testing.assert_close(actual, expected)
        cotangents = [cotangent_for(y) for y in expected]
        torch.testing.assert_close(
            torch.autograd.grad(actual, operands, cotangents), torch.autograd.grad(expected, operands, cotangents)
        )


def test_the_library_operator(zoo):
    graph = graph_of(zoo["duplicates"])
    operands = [x.detach() for group in cases(2, 3)["gat_edges"].operands(zoo["duplicates"]) for x in group]
    arguments = (
        graph.indptr,
        graph.indices,
        graph.edge_ids,
        graph.shape[1],
        operands,
        "leaky_relu(add(add(x0, x1), x2), 0.2)",
        "row,column,edge",
        "x0",
        "column",
        False,
    )
    gsb.gat_attention(graph, *layer_operands(zoo["duplicates"])[4:6], layer_operands(zoo["duplicates"])[2])
    torch.library.opcheck(torch.ops.gsb.attend.default, arguments)
    with pytest.raises(ValueError, match="x0 must have 4 rows, one per destination of the graph"):
        torch.ops.gsb.attend(*arguments[:4], [operands[0][:3], *operands[1:]], *arguments[5:])


def test_half_types_under_autocast(zoo):
    graph = graph_of(zoo["random"])
    query, key, value = layer_operands(zoo["random"], dtype=torch.bfloat16)[:3]
    with torch.autocast("cpu", torch.bfloat16):
        assert gsb.attention(graph, query, key, value.float()).dtype == torch.float32


def fails(text, error=ValueError, **changes):
    return changes, error, text


@pytest.mark.parametrize(
    "name, changes, error, text",
    [
        ("attention", *fails("graph must be a gsb.Graph", TypeError, graph=3)),
        (
            "attention",
            *fails(
                "attention: query must have shape .n, 2, D., with the 2 heads of value, got .33, 4.",
                query=torch.zeros(33, 4),
            ),
        ),
        (
            "attention",
            *fails("attention: query must have shape .n, D., as value has no heads", value=torch.zeros(29, 3)),
        ),
        (
            "attention",
            *fails("query and key must have the same last dimension, got .33, 2, 5. and", query=torch.zeros(33, 2, 5)),
        ),
        (
            "attention",
            *fails("attention: key must have 29 rows, one per source of the graph", key=torch.zeros(33, 2, 4)),
        ),
        ("attention", *fails("attention: value must have shape .n_src, H, D.*got .29,.", value=torch.zeros(29))),
        (
            "attention",
            *fails(
                "query is torch.float32 but value is torch.float64",
                TypeError,
                value=torch.zeros(29, 2, 3, dtype=torch.float64),
            ),
        ),
        (
            "attention",
            *fails("value must be float32, .* got torch.int64", TypeError, value=torch.zeros(29, 2, 3).long()),
        ),
        ("attention", *fails("scale must be a number or None, got 'x'", scale="x")),
        ("attention", *fails("edge_weight must have 200 rows, one per edge", edge_weight=torch.zeros(20, 2))),
        (
            "attention",
            *fails(
                "edge_weight must have shape .n, 2., one per head of value, got .200,.", edge_weight=torch.zeros(200)
            ),
        ),
        ("gat_attention", *fails("dst_scores must have shape .n, 2., one per head", dst_scores=torch.zeros(33))),
        ("gat_attention", *fails("src_scores must have 29 rows", src_scores=torch.zeros(33, 2))),
        ("gat_attention", *fails("negative_slope must be a finite number, got nan", negative_slope=float("nan"))),
        ("gatv2_attention", *fails("att must have shape .2, 4., the features of x_src, got .4,.", att=torch.zeros(4))),
        ("gatv2_attention", *fails("x_dst and x_src must have the same last dimension", x_dst=torch.zeros(33, 2, 1))),
    ],
)
def test_errors(zoo, name, changes, error, text):
    query, key, value, _at_edges, at_rows, at_columns, att = layer_operands(zoo["random"], dtype=torch.float32)
    given = {
        "attention": {"query": query, "key": key, "value": value},
        "gat_attention": {"dst_scores": at_rows, "src_scores": at_columns, "value": value},
        "gatv2_attention": {"x_dst": query, "x_src": key, "att": att},
    }[name]
    with pytest.raises(error, match=text):
        getattr(gsb, name)(**({"graph": graph_of(zoo["random"])} | given | changes))


@pytest.mark.parametrize("heads", [(2,), ()])
def test_scores_of_no_features_are_equal(zoo, heads):
    """And the layers are means, with gradients of all operands."""
    structure = zoo["duplicates"]
    _, _, (rows, cols) = structure
    graph = graph_of(structure)

    def zeros_and_values(*names):
        sizes = {"row": (rows, *heads, 0), "column": (cols, *heads, 0), "all": (*heads, 0), "value": (cols, *heads, 3)}
        return [torch.randn(sizes[name], dtype=torch.float64, requires_grad=True) for name in names]

    for layer, names in (
        (gsb.attention, ("row", "column", "value")),
        (lambda g, q, k, v: gsb.attention(g, q, k, v, 0.5), ("row", "column", "value")),
        (lambda g, x, y, a, v: gsb.gatv2_attention(g, x, y, a, value=v), ("row", "column", "all", "value")),
    ):
        operands = zeros_and_values(*names)
        out, mean = layer(graph, *operands), gsb.spmm(graph, operands[-1], reduce="mean")
        torch.testing.assert_close(out, mean)
        *others, of_value = torch.autograd.grad(out.sum(), operands)
        torch.testing.assert_close(of_value, torch.autograd.grad(mean.sum(), operands[-1])[0])
        assert [x.shape for x in others] == [x.shape for x in operands[:-1]]
        with torch.no_grad():
            on_meta = layer(graph, *(x.to("meta") for x in operands))
        assert on_meta.is_meta and on_meta.shape == out.shape
