"""When traced programs get our operators: while PyG is enabled, by Inductor, and never after."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch._inductor.config as inductor
from torch_geometric.nn import GraphSAGE

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.entry_points import _SETTINGS, _Pass

NODES, EDGES, WIDTH = 29, 170, 8


def graph(nodes: int = NODES, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, WIDTH, generator=gen), torch.randint(nodes, (2, 6 * nodes), generator=gen)


def ours() -> int:
    return sum(found["ours"] for found in gsb.status().to_dict()["calls"].get("pyg", {}).values())


def test_the_pass_is_there_while_pyg_is_enabled():
    before = [getattr(inductor, setting) for setting in _SETTINGS]
    gsb.enable("pyg")
    assert all(isinstance(getattr(inductor, setting), _Pass) for setting in _SETTINGS)
    gsb.enable("pyg")
    gsb.disable("pyg")
    assert [getattr(inductor, setting) for setting in _SETTINGS] == before
    gsb.disable("pyg")


def test_a_pass_of_the_users_runs_before():
    seen = []
    inductor.pre_grad_custom_pass = seen.append
    try:
        gsb.enable("pyg")
        assert inductor.pre_grad_custom_pass.uuid() is None, "what cannot be told apart is not kept"
        inductor.pre_grad_custom_pass(torch.fx.Graph())
        assert len(seen) == 1
        gsb.disable("pyg")
        assert inductor.pre_grad_custom_pass == seen.append
    finally:
        inductor.pre_grad_custom_pass = None


def test_a_pass_that_was_put_there_since_stays():
    gsb.enable("pyg")
    mine = inductor.pre_grad_custom_pass = lambda graph: None
    try:
        gsb.disable("pyg")
        assert inductor.pre_grad_custom_pass is mine
    finally:
        inductor.pre_grad_custom_pass = None


def test_caches_tell_programs_apart():
    first, second, *_ = (partial(_Pass, setting) for setting in _SETTINGS)
    assert first("pyg", None).uuid() == first("pyg", None).uuid() != first("other", None).uuid()
    assert first("pyg", first("other", None)).uuid() != first("pyg", None).uuid() != second("pyg", None).uuid()


@pytest.mark.slow
def test_training_by_inductor():
    """Enabled, disabled and enabled again: every program is compiled for what is on when it runs."""
    x, edges = graph()
    losses = []
    for enabled in (False, True, False):
        (gsb.enable if enabled else gsb.disable)("pyg")
        torch.manual_seed(0)
        model = GraphSAGE(WIDTH, WIDTH, 2)
        optimizer, compiled = torch.optim.SGD(model.parameters(), 0.1), torch.compile(model, fullgraph=True)
        gsb.integrations.reset_status()
        for _step in range(3):
            optimizer.zero_grad()
            loss = compiled(x, edges).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        assert ours() == (2 * 3 if enabled else 0)  # a mean of each layer
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and losses[2] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.slow
def test_one_program_for_all_sizes():
    gsb.enable("pyg")
    torch.manual_seed(0)
    model = GraphSAGE(WIDTH, WIDTH, 1)
    compiled = torch.compile(model, dynamic=True)
    x, edges = graph()
    compiled(x, edges)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for nodes in (NODES + 3, 2 * NODES):
            x, edges = graph(nodes, nodes)
            torch.testing.assert_close(compiled(x, edges), model(x, edges))
    assert ours() >= 3


def test_options_of_inductor():
    x, edges = graph()

    @gsb.compile(options={"max_autotune": False}, dynamic=False)
    def program(x, edges):
        return torch.zeros_like(x).index_add(0, edges[1], x.index_select(0, edges[0]))

    torch.testing.assert_close(program(x, edges), torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
    assert gsb.status().to_dict()["calls"]["torch.compile"]["copy.sum"]["ours"] == 1
