"""``gsb.rgms`` on graphs with several types of nodes, the forms that operands may take, and under ``torch.compile``."""

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.message_oracle import values

COUNTS = {"item": 5, "shop": 3, "user": 4}
EDGES = {
    ("user", "likes", "item"): 20,
    ("item", "liked", "user"): 9,
    ("shop", "sells", "item"): 6,
    ("user", "knows", "user"): 0,
}


def typed_edges():
    generator = torch.Generator().manual_seed(1)
    return {
        name: tuple(torch.randint(0, COUNTS[name[end]], (count,), generator=generator) for end in (0, 2))
        for name, count in EDGES.items()
    }


def from_dgl(idtype=torch.int64):
    dgl = pytest.importorskip("dgl")
    return gsb.RelGraph.from_dgl(dgl.heterograph(typed_edges(), num_nodes_dict=COUNTS, idtype=idtype))


def from_pyg():
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    for kind, count in COUNTS.items():
        data[kind].num_nodes = count
    for name, ends in typed_edges().items():
        data[name].edge_index = torch.stack(ends)
    return gsb.RelGraph.from_pyg(data)


SOURCES = {"dgl": from_dgl, "dgl int32": lambda: from_dgl(torch.int32), "pyg": from_pyg}


def oracle(rel, x, weight, edge_weight=None, mean=False):
    """By relation, in the graph's own order of names: every edge's product, added to its destination."""
    out = {kind: torch.zeros(COUNTS[kind], weight.shape[2], dtype=weight.dtype) for kind in rel.destination_types}
    for matrix, name in zip(weight, rel.relations):
        u, v = typed_edges()[name]
        message = x[name[0]][u] @ matrix
        if edge_weight is not None:
            message = message * edge_weight[name].reshape(-1, 1)
        if mean and len(u):
            message = message / torch.bincount(v, minlength=COUNTS[name[2]])[v].unsqueeze(1)
        out[name[2]] = out[name[2]].index_add(0, v, message)
    return out


def operands():
    x = {kind: values(seed, count, 6).requires_grad_() for seed, (kind, count) in enumerate(COUNTS.items())}
    a = {name: values(9, max(count, 1), 1)[:count].requires_grad_() for name, count in EDGES.items()}
    return x, values(5, len(EDGES), 6, 4).requires_grad_(), a


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_features_by_node_type(source, weighted, reduce):
    rel, (x, w, a) = SOURCES[source](), operands()
    assert rel.num_relations == len(EDGES) and set(rel.relations) == set(EDGES) and rel.source_types == COUNTS
    found = gsb.rgms(rel, x, w, a if weighted else None, reduce)
    right = oracle(rel, x, w, a if weighted else None, reduce == "mean")
    assert found.keys() == right.keys()
    leaves = [*x.values(), w, *(a.values() if weighted else ())]
    for kind in right:
        torch.testing.assert_close(found[kind], right[kind])
    gradients = [torch.autograd.grad(sum(y.sin().sum() for y in each.values()), leaves) for each in (found, right)]
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other)


BAD = {
    "missing": (
        lambda x, a: (x.pop("shop"), None)[1],
        ValueError,
        "x must have an entry for every source type .*'shop' is missing",
    ),
    "unknown": (lambda x, a: x.update(moon=values(1, 2, 6)), ValueError, "'moon' is none"),
    "rows": (
        lambda x, a: x.update(shop=values(1, 2, 6)),
        ValueError,
        r"x\['shop'\] must be a tensor with 3 rows, got \(2, 6\)",
    ),
    "no tensor": (lambda x, a: x.update(shop=3), ValueError, r"x\['shop'\] must be a tensor with 3 rows, got int"),
    "edge weights": (
        lambda x, a: a.pop(("user", "likes", "item")) is None,
        ValueError,
        "edge_weight must have an entry for every relation",
    ),
    "edges": (
        lambda x, a: a.update({("user", "likes", "item"): values(1, 3, 1)}),
        ValueError,
        "must be a tensor with 20 rows",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case):
    change, error, words = BAD[case]
    rel, (x, w, a) = from_pyg(), operands()
    change(x, a)
    with pytest.raises(error, match=words):
        gsb.rgms(rel, x, w, a)


def test_features_of_several_widths_want_a_matrix_for_each_relation():
    rel, (x, w, _) = from_pyg(), operands()
    x["shop"] = values(1, 3, 5)
    with pytest.raises(
        ValueError, match=r"as many features for every source type, got .*\(3, 5\) for 'shop', .* give weight as a dict"
    ):
        gsb.rgms(rel, x, w)


WIDTHS = {"item": 6, "shop": 3, "user": 6}


def operands_of_widths(widths=WIDTHS, results=4):
    """results: the width of every type's, or one for each."""
    x, _, a = operands()
    x = {kind: values(seed, count, widths[kind]).requires_grad_() for seed, (kind, count) in enumerate(COUNTS.items())}
    results = dict.fromkeys(COUNTS, results) if isinstance(results, int) else results
    return (
        x,
        {name: values(20 + n, widths[name[0]], results[name[2]]).requires_grad_() for n, name in enumerate(EDGES)},
        a,
    )


@pytest.mark.parametrize("reduce, weighted", [("sum", True), ("mean", False)])
@pytest.mark.parametrize("widths", [WIDTHS, dict.fromkeys(COUNTS, 6)], ids=["several", "one"])
def test_widths_by_node_type(widths, reduce, weighted):
    rel, (x, w, a) = from_pyg(), operands_of_widths(widths)
    found = gsb.rgms(rel, x, w, a if weighted else None, reduce)
    right = {kind: torch.zeros(count, 4, dtype=torch.float64) for kind, count in COUNTS.items()}
    for name in EDGES:  # the matrices of the others are zeros
        alone = torch.stack([w[name] if other == name else torch.zeros_like(w[name]) for other in rel.relations])
        for kind, y in oracle(
            rel,
            {k: y if k == name[0] else values(0, COUNTS[k], widths[name[0]]) for k, y in x.items()},
            alone,
            a if weighted else None,
            reduce == "mean",
        ).items():
            right[kind] = right[kind] + y
    assert found.keys() == right.keys()
    leaves = [*x.values(), *w.values(), *(a.values() if weighted else ())]
    for kind in right:
        torch.testing.assert_close(found[kind], right[kind])
    gradients = [
        torch.autograd.grad(sum(y.sin().sum() for y in each.values()), leaves, allow_unused=True)
        for each in (found, right)
    ]
    for one, other in zip(*gradients):
        torch.testing.assert_close(torch.zeros(()) if one is None else one, torch.zeros(()) if other is None else other)


def test_results_of_several_widths():
    """Of items and users; nothing says which width shops have, which no relation goes into."""
    rel, (x, w, _) = from_pyg(), operands_of_widths(results={"item": 4, "user": 2})
    with pytest.raises(ValueError, match="no relation into 'shop' says its F_out, and others have 2, 4"):
        gsb.rgms(rel, x, w)
    found = gsb.rgms(rel.of_relations(tuple(range(len(EDGES)))), x, w)
    right = {kind: torch.zeros(COUNTS[kind], width, dtype=torch.float64) for kind, width in (("item", 4), ("user", 2))}
    for name, (u, v) in typed_edges().items():
        right[name[2]] = right[name[2]].index_add(0, v, x[name[0]][u] @ w[name])
    assert found.keys() == right.keys()
    for kind in right:
        torch.testing.assert_close(found[kind], right[kind])


@pytest.mark.slow
def test_widths_by_node_type_compiled():
    torch._dynamo.reset()
    rel, (x, w, _) = from_pyg(), operands_of_widths()
    layer = lambda x, w: sum(y.sin().sum() for y in gsb.rgms(rel, x, w).values())
    for whole in (False, True):  # the first call derives the graphs of each width
        found = torch.compile(layer, fullgraph=whole, backend="aot_eager")(x, w)
        torch.testing.assert_close(found, layer(x, w))


LIKES, SELLS = ("user", "likes", "item"), ("shop", "sells", "item")
BAD_WIDTHS = {
    "missing": (
        lambda x, w: w.pop(LIKES),
        ValueError,
        "weight must have an entry for every relation.*'likes'.* is missing",
    ),
    "unknown": (lambda x, w: w.update(moon=values(1, 2, 3)), ValueError, "'moon' is none"),
    "no tensor": (lambda x, w: w.update({LIKES: 3}), TypeError, "must be a tensor, got int"),
    "vector": (
        lambda x, w: w.update({LIKES: values(1, 6)}),
        ValueError,
        r"must have shape \(F_in, F_out\) .* got \(6,\)",
    ),
    "F_in": (
        lambda x, w: w.update({LIKES: values(1, 5, 4)}),
        ValueError,
        r"shape \(5, 4\) takes 5 features, but x\['user'\] has 6",
    ),
    "F_out": (
        lambda x, w: w.update({SELLS: values(1, 3, 2)}),
        ValueError,
        "one F_out for all relations into 'item', got 2, 4",
    ),
    "types": (
        lambda x, w: w.update({LIKES: values(1, 6, 4).float()}),
        TypeError,
        "of one type, got torch.float32, torch.float64",
    ),
    "rows": (lambda x, w: x.update(shop=values(1, 2, 3)), ValueError, r"x\['shop'\] must be a tensor with 3 rows"),
}


@pytest.mark.parametrize("case", BAD_WIDTHS)
def test_refuses_matrices_by_relation(case):
    change, error, words = BAD_WIDTHS[case]
    rel, (x, w, _) = from_pyg(), operands_of_widths()
    change(x, w)
    with pytest.raises(error, match=words):
        gsb.rgms(rel, x, w)


def test_refuses_matrices_by_names_that_there_are_none_of():
    rel, (x, w, _) = gsb.RelGraph.from_triples(*[torch.tensor([0])] * 3, (1, 1)), operands_of_widths()
    with pytest.raises(ValueError, match="the relations of this graph have no names"):
        gsb.rgms(rel, x["shop"], w)
    with pytest.raises(ValueError, match="need x as a dict by source type, got Tensor"):
        gsb.rgms(from_pyg(), values(1, 12, 6), w)


def arrays(relations, edges=400, nodes=30, hub=0):
    generator = torch.Generator().manual_seed(2)
    source, destination = (torch.randint(0, nodes, (edges + hub,), generator=generator) for _ in range(2))
    destination[edges:] = 7
    return source, destination, torch.randint(0, relations, (edges + hub,), generator=generator), nodes


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "weights, reduce, weighted, dtype",
    [
        ("full", "sum", False, torch.float32),
        ("full", "mean", True, torch.bfloat16),
        ("blocks", "mean", True, torch.float32),
        ("basis", "mean", True, torch.float32),
    ],
    ids=str,
)
def test_compiles_without_a_graph_break(weights, reduce, weighted, dtype):
    torch._dynamo.reset()  # which counts the compilations of one function
    source, destination, relation, nodes = arrays(5)
    rel = gsb.RelGraph.from_triples(source, destination, relation, (nodes, nodes), 5)
    x, a = (
        values(1, nodes, 8).to(dtype).requires_grad_(),
        values(2, len(source)).to(dtype).requires_grad_() if weighted else None,
    )
    w = {
        "full": [values(3, 5, 8, 6)],
        "blocks": [values(3, 5, 2, 4, 3)],
        "basis": [values(3, 5, 3), values(4, 3, 8, 6)],
    }[weights]
    w = [y.to(dtype).requires_grad_() for y in w]

    def layer(x, a, *w):
        return gsb.rgms(rel, x, w if weights == "basis" else w[0], a, reduce).relu()

    leaves = [x, *w, *([a] if weighted else [])]
    expected = layer(x, a, *w)
    found = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, a, *w)
    tolerance = dict(rtol=0.05, atol=0.5) if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(found, expected, **tolerance)
    for one, other in zip(torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(expected.sum(), leaves)):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.short(1)
@pytest.mark.parametrize("bits", [32, 64])
def test_hub_and_thousand_relations_and_wide_indices(bits, set_index_bits):
    """A destination of 20,000 edges among unsorted types, most of which have none, in both index types."""
    set_index_bits(bits)
    source, destination, relation, nodes = arrays(1000, hub=20_000)
    relation[::2] = 999
    rel = gsb.RelGraph.from_triples(source, destination, relation, (nodes, nodes), 1000)
    assert rel.source.dtype == (torch.int32 if bits == 32 else torch.int64)
    x, w = values(1, nodes, 4).requires_grad_(), values(2, 1000, 4, 3).requires_grad_()
    found = gsb.rgms(rel, x, w, reduce="mean")
    counts = torch.zeros(nodes, 1000, dtype=torch.float64).index_put_(
        (destination, relation), torch.ones(len(source), dtype=torch.float64), accumulate=True
    )
    message = torch.einsum("ei,eio->eo", x[source], w[relation]) / counts[destination, relation].unsqueeze(1)
    right = torch.zeros(nodes, 3, dtype=torch.float64).index_add(0, destination, message)
    torch.testing.assert_close(found, right)
    for one, other in zip(*(torch.autograd.grad(y.sin().sum(), (x, w)) for y in (found, right))):
        torch.testing.assert_close(one, other)
