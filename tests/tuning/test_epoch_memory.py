"""What ``gsb.precompile(..., memory=True)`` says of an epoch, against what one takes."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.chunked import slices
from gnn_sparse_backend.runtime import large_blocks
from tests.integrations.test_layers_by_rows import edges_without_loops
from tests.integrations.test_low_memory import network

NODES, WIDTHS = 12_000, (128, 128, 8)


@pytest.fixture(autouse=True)
def off():
    yield
    gsb.disable()


def asked(graph, ops, features):
    report = gsb.precompile(graph, features, ops, budget=0, progress=False, memory=True)
    (found,) = report.memory
    assert str(found) in str(report)
    return found


@pytest.mark.parametrize("memory", ["low", "fast"])
@pytest.mark.parametrize(("kind", "heads"), [("sage", 0), ("gcn", 0), ("gat", 8)])
def test_an_epoch_takes_what_it_says(kind, heads, memory, monkeypatch):
    if not gsb.reuse_memory():
        pytest.skip("large tensors are not counted here")
    one = NODES * WIDTHS[0] * 4
    monkeypatch.setattr(slices, "CHUNK", one // 32)
    monkeypatch.setattr(slices, "EDGES", 1 << 14)
    edges = edges_without_loops(NODES, 600_000)
    edges = edges[:, edges[1].argsort(stable=True)]
    gsb.enable("pyg", memory=memory)
    features = [(heads, width // heads) for width in WIDTHS] if heads else list(WIDTHS)
    told = asked(gsb.Graph.from_edge_index(edges, (NODES, NODES)), "gat_attention" if heads else "mean", features)
    said = sum(row.nbytes for row in told.rows if row.of == "layers")
    model, x = network("pyg", kind, (32, *WIDTHS)), torch.randn(NODES, 32)
    if memory == "low":
        gsb.checkpoint_layers(model)
    state = large_blocks.blocks()._state
    model((edges,), x).sum().backward()
    begin = state.most = state.used
    model((edges,), x).sum().backward()
    peak = state.most - begin
    gsb.reuse_memory(False)
    assert peak <= said + one / 4 and said <= 1.3 * peak


def test_more_is_kept_without_little_memory():
    graph = gsb.Graph.from_edge_index(edges_without_loops(), (120, 120))
    plain = asked(graph, "mean", [16, 8])
    with gsb.enabled("pyg", memory="low"):
        little = asked(graph, "mean", [16, 8])

    def of_layers(found):
        return sum(row.nbytes for row in found.rows if row.of == "layers")

    assert of_layers(little) < of_layers(plain)
    assert {"in memory now", "kept until the backward pass"} <= {row.what for row in plain.rows}
    with pytest.raises(TypeError, match="memory must be True or False"):
        gsb.precompile(graph, memory=1)
