"""What ``gsb.explain`` says of a relational graph, against the panels that the operator runs on."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.relational import executables_cpu as rgms_cpu
from gnn_sparse_backend.ops.relational import explain as explain_relational
from gnn_sparse_backend.runtime import devices

NODES = 20_000


@pytest.fixture(scope="module")
def rel():
    """Thirty relations of random edges, one from few sources and one into few destinations; the last has no edges."""
    generator = torch.Generator().manual_seed(0)

    def some(bound, count):
        return torch.randint(bound, (count,), generator=generator)

    source = torch.cat([some(NODES, 100_000), some(50, 60_000), some(NODES, 60_000)])
    destination = torch.cat([some(NODES, 100_000), some(NODES, 60_000), some(50, 60_000)])
    relation = torch.cat([some(30, 100_000), torch.full((60_000,), 30), torch.full((60_000,), 31)])
    return gsb.RelGraph.from_triples(source, destination, relation, (NODES, NODES), 33)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("features", [16, (32, 24)])
def test_orders_are_those_that_run(rel, backward, features, monkeypatch):
    found = gsb.explain(rel, "rgms", features, backward=backward)
    ran = {}
    entry = rgms_cpu._entry

    def record(make, *described):
        run = entry(make, *described)

        def call(*arguments):
            ran[make] = ran.get(make, 0) + arguments[4]  # edges of the panels
            return run(*arguments)

        return call

    monkeypatch.setattr(rgms_cpu, "_entry", record)
    wide_in, wide_out = (features, features) if isinstance(features, int) else features
    x, w = torch.randn(NODES, wide_in, requires_grad=True), torch.randn(33, wide_in, wide_out)
    y = gsb.rgms(rel, x, w)
    if backward:
        ran.clear()
        y.backward(torch.ones_like(y))
    assert ran["gather"] == sum(plan.gathered for plan in found.relations)
    assert ran.get("scatter", 0) == rel.num_edges - ran["gather"] > 0
    by_name = {plan.name: plan for plan in found.relations}
    assert by_name["31" if backward else "30"].order == "scatter" and "32" not in by_name
    assert by_name["30"].edges == 60_000 and sum(plan.edges for plan in found.relations) == rel.num_edges


def test_the_text_says_what_decided(rel):
    text = str(gsb.explain(rel, features=(64, 16)))
    assert "rgms, 64 to 16 features (float32) on 20,000 x 20,000 with 220,000 edges of 33 relations" in text
    assert "by scatter" in text and "ranges of rows" in text and "gradient of the matrices" in text
    assert f"{32 - explain_relational.LISTED} more" in text
    assert "gradient to x of rgms, 16 to 64" in str(gsb.explain(rel, "rgms", (64, 16), backward=True))


def test_small_graphs_and_none(rel):
    one = gsb.RelGraph.from_triples(torch.tensor([0]), torch.tensor([1]), torch.tensor([1]), (2, 2))
    found = gsb.explain(one, "rgms", 4)
    assert (
        found.small
        and "all relations by gather on one thread" in str(found)
        and [plan.name for plan in found.relations] == ["1"]
    )
    empty = torch.empty(0, dtype=torch.int64)
    assert "there are no edges" in str(gsb.explain(gsb.RelGraph.from_triples(empty, empty, empty, (2, 2), 3)))


def test_relations_have_their_names():
    pyg = pytest.importorskip("torch_geometric.data")
    data = pyg.HeteroData()
    data["user"].num_nodes, data["film"].num_nodes = 3, 2
    data["user", "rates", "film"].edge_index = torch.tensor([[0, 1], [1, 0]])
    assert "user rates film" in str(gsb.explain(gsb.RelGraph.from_pyg(data), "rgms", 4))


def test_on_a_gpu_one_order_serves_all(rel, monkeypatch):
    monkeypatch.setattr(devices, "arch_of", lambda device: "sm_90")
    found = gsb.explain(rel, "rgms", 64, dtype="bfloat16")
    assert found.order in ("rows", "tiles", "transform") and f"one order serves all relations: {found.order}" in str(
        found
    )


@pytest.mark.parametrize(
    "op, features, words",
    [
        ("sum", 64, "sum runs on a graph, got a gsb.RelGraph, or a graph with edge types: choose from rgms, "),
        ("pow", 64, "unknown operator 'pow': choose on a graph: sum, "),
        ("rgms", 0, "got 0"),
        ("rgms", (4, 5, 6), r"got \(4, 5, 6\)"),
        ("rgms", True, "got True"),
        ("rgms", "8", "got '8'"),
    ],
)
def test_bad_arguments(rel, op, features, words):
    with pytest.raises(ValueError, match=words):
        gsb.explain(rel, op, features)


def test_rgms_of_another_graph():
    with pytest.raises(ValueError, match="runs on a gsb.RelGraph, .*, which an object of type Tensor is not"):
        gsb.explain(torch.tensor([[0], [0]]), "rgms")


def test_other_products_have_one_plan(rel):
    text = str(gsb.explain(rel, "weighted_rgms_mean", (64, 16)))
    assert "weighted_rgms_mean of (64, 16) features (float32) on 20,000 x 20,000, 220,000 edges, 33 relations" in text
    assert "plan: by rules, unless gsb.precompile(..., search=True)" in text
    with pytest.raises(ValueError, match="takes one width, got"):
        gsb.explain(rel, "rgms_mean", [8, 16])


def test_a_graph_of_another_library_with_types_of_edges():
    edges, types = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 1])
    assert [plan.name for plan in gsb.explain((edges, types), "rgms", 4).relations] == ["1", "0"]
