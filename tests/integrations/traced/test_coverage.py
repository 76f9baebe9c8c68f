"""Every layer of both frameworks that runs on our kernels does so under ``torch.compile``, with the same results."""

from __future__ import annotations

import importlib

import pytest

import gnn_sparse_backend as gsb
from tests.coverage.compiled import run_compiled
from tests.coverage.report import ZOOS, compare, exceptions, run_case
from tests.integrations.layers_of_a_walk import walk

FEW = {"pyg": ("SAGEConv", "GATConv", "HeteroConv", "own layer"), "dgl": ("GraphConv", "GATConv")}
CASES, RUNS = {}, []
for framework, few in FEW.items():
    try:
        pages = importlib.import_module(ZOOS[framework]).PAGES
    except ImportError:  # the framework is not installed
        continue
    cases = [case for page, cases in pages.items() if page != "modes" for case in cases]
    CASES |= {(framework, case.name): case for case in cases}
    RUNS += walk(((case.name, framework) for case in cases), few)


@pytest.mark.parametrize("name", ["SAGEConv, mean", "GINConv, sum"])
def test_a_layer_on_a_given_graph_is_one_program(name):
    pytest.importorskip("torch_geometric")
    case = CASES["pyg", name]
    run_case("pyg", case, 0)  # makes the graph
    assert str(run_compiled("pyg", case)) == "1 (one)"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, framework", RUNS)
def test_a_compiled_step_is_a_step_without(name, framework):
    case = CASES[framework, name]
    gsb.disable()
    without = run_case(framework, case, 0)
    with gsb.enabled(framework):
        eager = run_case(framework, case, 0)
    compiled = run_compiled(framework, case)
    if compiled.outcome is None:
        pytest.skip("PyTorch does not compile it, with the backend or without")
    assert compare(compiled.outcome, without) == []
    assert compiled.outcome.ours or not eager.ours, f"{eager.ours} calls on our kernels in the eager step"
    assert compiled.outcome.fallbacks.keys() <= exceptions(framework, case).keys()
