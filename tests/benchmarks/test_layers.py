"""The layers of both frameworks compute the same where they are said to, and a difference is noticed."""

import pytest
import torch

from benchmarks.layers.layers import LayerStep, disagreement
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import ONE_EDGE, BenchmarkGraph

SHAPE = {"features": 5, "heads": 2, "width": 3}


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(40, 150, 2.0, 20, seed=0))


@pytest.mark.parametrize("kind", ["gat", "gatv2", "transformer"])
def test_dgl_and_pyg_agree(tiny, kind):
    pytest.importorskip("dgl")
    pytest.importorskip("torch_geometric")
    dgl, pyg = (LayerStep(framework, kind, tiny, **SHAPE) for framework in ("dgl", "pyg"))
    expected, given = dgl.step(), pyg.step()
    assert expected[0].shape == (40, 6) and expected[1].shape == (40, 5)
    assert disagreement(dgl.results[:2], given, expected) is None
    assert all(gradient.abs().max() > 0 for gradient in (*given, *expected))
    assert torch.equal(dgl.inference(), expected[0]) and not dgl.inference().requires_grad


@pytest.mark.parametrize("framework", ["dgl", "pyg"])
@pytest.mark.parametrize("kind", ["gat", "gatv2", "transformer"])
def test_steps_run_on_one_edge_and_on_none(framework, kind, tiny):
    pytest.importorskip({"dgl": "dgl", "pyg": "torch_geometric"}[framework])
    for graph in (ONE_EDGE, tiny.without_edges()):
        y, *gradients = LayerStep(framework, kind, graph, **SHAPE).step()
        assert y.shape == (graph.shape[0], 6) and y.isfinite().all()
    assert not y.any() and not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("framework", ["dgl", "pyg"])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_layers_as_their_frameworks_make_them(framework, kind, tiny):
    pytest.importorskip({"dgl": "dgl", "pyg": "torch_geometric"}[framework])
    step = LayerStep(framework, kind, tiny, **SHAPE, plain=False)
    assert len(step.step()) == len(step.results) and any("bias" in name for name in step.results)


def test_a_single_wrong_entry_is_noticed():
    right = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    assert disagreement(("y",), (right + 1e-5,), (right,)) is None
    for spoil in (0.01, float("nan"), float("inf")):
        wrong = right.clone()
        wrong[7, 3] += spoil
        assert "y is off in 1 of 8000" in disagreement(("y",), (wrong,), (right,))
    assert "shape (999, 8) instead of (1000, 8)" in disagreement(("y",), (right[:-1],), (right,))
