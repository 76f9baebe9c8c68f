"""What ``gsb.explain`` lists beside the plan is what ``gsb.last_run`` then names; and every operator is explained."""

import re

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.prepared import KINDS, PREPARED
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.structures.csr import EdgeList
from gnn_sparse_backend.tuning.explain import explain_structure
from gnn_sparse_backend.tuning.precompile_operators import operators_named

operators_named("sum")  # all families have said what they prepare
ROWS, EDGES = 3_000, 40_000


def graph_of(seed: int) -> gsb.Graph:
    generator = torch.Generator().manual_seed(seed)
    row, col = (torch.randint(ROWS, (EDGES,), generator=generator) for _ in range(2))
    return gsb.Graph.from_coo(row, col, (ROWS, ROWS))


@pytest.mark.parametrize("op, dtype", [("max", "bfloat16"), ("sum", "float32")])
def test_every_variant_that_is_taken_was_listed(op, dtype):
    """At the first and at the ninth call, at addresses of pairs and at others."""
    graph = graph_of(1)
    told = gsb.explain(graph, op, 16, dtype=dtype)
    taken = set()
    for skipped in (0, 1):
        x = torch.ones(ROWS * 16 + 1, dtype=getattr(torch, dtype))[skipped:][: ROWS * 16].view(ROWS, 16)
        for _ in range(9):
            gsb.spmm(graph, x, reduce=op)
            taken.add(gsb.last_run().steps[-1].variant)
    assert taken <= set(told.variants)
    assert len(taken) == (3 if dtype == "bfloat16" else 2)
    for name, when in told.variants.items():
        assert f"variant: {name}: {when}" in str(told).replace("\n", " ")


def test_a_plan_of_one_way_lists_no_variants():
    assert not gsb.explain(graph_of(2), "sum", 64).variants and "variant" not in str(gsb.explain(graph_of(2), "sum"))


@pytest.mark.few
def test_what_is_told_of_new_graphs_is_what_happens(set_threads):
    set_threads(1)
    row, col = (torch.randint(700, (1_700,), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    said = str(gsb.explain(gsb.Graph.from_coo(row, col, (700, 700)), "sum", 64)).replace("\n", " ")
    passes = int(re.search(r"the first (\d+) passes read the edges as they are listed", said)[1])
    graph = gsb.Graph._of_list(EdgeList(row, col, (700, 700)))
    for number in range(passes + 2):
        gsb.spmm(graph, torch.ones(700, 64))
        assert ("as they are listed" in str(gsb.last_run().steps[-1].plan)) == (number < passes)
    assert "brought into rows at once" in str(gsb.explain(graph_of(1), "sum", 64))


def test_the_formats_of_a_matrix_are_a_table(tmp_path):
    """Format, padding, what is predicted and measured, and which is taken and why: of matrices and of graphs."""
    matrix = torch.zeros(128, 96)
    matrix[:64, 32:64], matrix[100, 3] = 1.0, 2.0
    graph = gsb.Graph.from_coo(*matrix.nonzero().t(), matrix.shape)
    with database.using(PlanDatabase(tmp_path / "plans.json")):
        for given in (matrix, matrix.to_sparse_csr(), graph):
            told = gsb.explain(given, "format", 48)
            assert told.source == "predicted" and {row.formats for row in told.rows} >= {"dense", "csr", "bsr(8) + csr"}
            assert {row.formats: row.padding for row in told.rows}["bsr(32)"] == 32 * 32 - 1
            text = " ".join(str(told).split())
            assert all(heading in text for heading in ("format", "padding", "predicted, µs", "measured, µs"))
            assert f"* {' + '.join(told.formats)}" in text and f"taken: {' + '.join(told.formats)}, predicted" in text
        gsb.tune_format(graph, 48, budget=0.01)
        told = gsb.explain(matrix, "format", 48)
        assert told.source == "known" and ", measured to be the fastest" in told.reason
    with pytest.raises(ValueError, match="features must be a whole number of at least 1, got 0"):
        gsb.explain(matrix, "format", 0)


def structure_of(kind: type):
    row, col = torch.tensor([0, 2, 1, 1]), torch.tensor([1, 1, 0, 2])
    made = {
        gsb.Graph: lambda: gsb.Graph.from_coo(row, col, (3, 3)),
        gsb.RelGraph: lambda: gsb.RelGraph.from_triples(col, row, row, (3, 3), 3),
        gsb.Segments: lambda: gsb.Segments.from_index(row, 3),
        gsb.KernelMap: lambda: gsb.KernelMap.from_pairs(row[:3], row[:3], torch.tensor([0, 2, 3]), (3, 3)),
        gsb.masks.Mask: lambda: gsb.masks.causal(3, block=2),
        gsb.formats.Decomposition: lambda: gsb.formats.decompose(torch.eye(3), ["bsr(2)", "csr"]),
    }
    return made[kind]()


@pytest.mark.parametrize("name", list(PREPARED))
def test_every_prepared_operator_is_explained(name):
    operator = PREPARED[name]
    features = 8 if len(operator.width) == 1 or operator.short else (8, 8, 2)
    text = str(explain_structure(structure_of(operator.on), name, features))
    assert name.removesuffix("_groups") in text.splitlines()[0]
    assert any(word in text for word in ("plan: by rules", "source: ", "by gather", "dataflows", "order: "))
    others = [kind for kind in KINDS if kind is not operator.on]
    with pytest.raises(ValueError, match=f"{name} runs on .*, got .*: choose from "):
        explain_structure(structure_of(others[0]), name, features)
