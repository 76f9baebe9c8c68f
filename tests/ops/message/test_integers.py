"""Reductions of int64 at edges, by every kind of plan of the CPU and on a GPU, against NumPy bit for bit."""

import numpy as np
import pytest
import torch

from gnn_sparse_backend import Graph
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import aggregate
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from gnn_sparse_backend.planner.plan import interned
from tests.covering import covering
from tests.ops.serial_gpu import cut_rows_short

NODES, EDGES = 300, 6000
PLANS = {
    "serial": RowPlan(groups=1),
    "groups": RowPlan(groups=4, prefetch=8),
    "partitions": PartitionPlan(groups=4, partitions=3),
    "parts": PartPlan(groups=4, part=64),
    "lanes": RowPlan(groups=1, in_lanes=True),
    "scattered": ScatteredPlan(groups=1),
    "slices": SlicePlan(groups=2, width=4),
}
REDUCES = {
    "sum": (np.add, 0, None),
    "prod": (np.multiply, 1, None),
    "max": (np.maximum, np.iinfo(np.int64).min, "even"),
    "min": (np.minimum, np.iinfo(np.int64).max, "even"),
}


@pytest.mark.parametrize(
    "plan, reduce, width", covering({"plan": list(PLANS), "reduce": list(REDUCES), "width": [1, 5, 40]})
)
def test_reductions(plan, reduce, width):
    graph, of, x, expected = problem(reduce, width)
    with planned(graph, of.kind, width, torch.float64, interned(PLANS[plan])):
        for _ in range(6):  # rows go by length after some calls
            assert np.array_equal(aggregate(of, graph, x).numpy(), expected)


@pytest.mark.parametrize(
    "reduce, width, parts", covering({"reduce": list(REDUCES), "width": [1, 5, 40], "parts": [False, True]})
)
def test_reductions_on_a_gpu(reduce, width, parts, monkeypatch, serial_gpu):
    if parts:
        cut_rows_short(monkeypatch, 40, 16)
    graph, of, x, expected = problem(reduce, width)
    assert np.array_equal(aggregate(of, graph, x).numpy(), expected)
    assert serial_gpu


def problem(reduce, width):
    """(graph, operator, values at edges, what is expected), of rows of very different lengths, one of them empty."""
    generator = np.random.default_rng(0)
    row = (generator.random(EDGES) ** 3 * (NODES - 1)).astype(np.int64)
    x = generator.integers(-(2**63), 2**63 - 1, (EDGES, width))
    ufunc, start, ties = REDUCES[reduce]
    expected = np.full((NODES, width), start)
    ufunc.at(expected, row, x)
    if ties is not None:
        expected[np.bincount(row, minlength=NODES) == 0] = 0
    graph = Graph.from_coo(torch.from_numpy(row), torch.zeros(EDGES, dtype=torch.int64), (NODES, NODES))
    return graph, message_op("x0", ("edge",), reduce, ties), torch.from_numpy(x), expected
