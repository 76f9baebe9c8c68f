"""Reduce functions over ``nodes.mailbox``: one call in the place of one for each degree, and what DGL gives."""

from __future__ import annotations

import dgl
import dgl.function as fn
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations.dgl.mailbox.inbox import UNKNOWN
from tests.integrations.dgl.oracle import calls

NODES, EDGES, WIDTH = 30, 140, 4


def linear(x):
    weight = torch.linspace(-1, 1, 3 * WIDTH, dtype=torch.float64).view(3, WIDTH)
    return F.linear(x, weight, weight.new_tensor([0.1, 0.2, 0.3]))


KNOWN = {
    "sum": lambda n: {"h": n.mailbox["m"].sum(1)},
    "torch.mean": lambda n: {"h": torch.mean(n.mailbox["m"], dim=1)},
    "axis": lambda n: {"h": torch.sum(n.mailbox["m"], axis=-2)},
    "max": lambda n: {"h": n.mailbox["m"].max(1)[0]},
    "torch.max": lambda n: {"h": torch.max(n.mailbox["m"], dim=1).values},
    "min": lambda n: {"h": n.mailbox["m"].min(dim=1)[0]},
    "attention": lambda n: {"h": torch.sum(F.softmax(n.mailbox["e"], dim=1) * n.mailbox["m"], dim=1)},
    "gates": lambda n: {
        "h": n.data["x"]
        + torch.sum(torch.sigmoid(n.mailbox["m"]) * n.mailbox["s"], 1) / (n.mailbox["m"].sigmoid().sum(1) + 1e-6)
    },
    "tree": lambda n: {
        "h": linear(n.mailbox["m"].sum(1)),
        "c": torch.sum(torch.sigmoid(linear(n.mailbox["m"])), 1),
    },
    "deviation": lambda n: {"h": ((n.mailbox["m"] - n.mailbox["m"].mean(1, keepdim=True)) ** 2).mean(1)},
    "a node's own": lambda n: {"h": (n.mailbox["m"] * n.data["x"].unsqueeze(1)).sum(1)},
    "scores": lambda n: {
        "h": (F.softmax((n.mailbox["m"] * n.data["x"].unsqueeze(1)).sum(-1, keepdim=True), dim=1) * n.mailbox["m"]).sum(
            1
        )
    },
    "scores without features": lambda n: {
        "h": (torch.softmax((n.mailbox["m"] * n.mailbox["s"]).sum(-1), 1).unsqueeze(-1) * n.mailbox["m"]).sum(1)
    },
    "cat": lambda n: {"h": torch.cat([n.mailbox["m"], n.mailbox["s"]], -1).sum(1)},
    "cat of nodes": lambda n: {"h": torch.cat([n.data["x"], n.mailbox["m"].sum(1)], dim=1)},
    "relu": lambda n: {"h": F.relu(n.mailbox["m"]).sum(1) - F.leaky_relu(n.mailbox["s"], 0.3).sum(1)},
    "logarithm": lambda n: {"h": n.mailbox["m"].exp().sum(1).log()},
    "numbers": lambda n: {"h": (2 - n.mailbox["m"] / 3).sum(1), "c": -n.mailbox["e"].sum(1)},
    "squeezed": lambda n: {"h": n.mailbox["m"].sum(1, keepdim=True).squeeze(1)},
    "degrees": lambda n: {"h": n.mailbox["m"].sum(1) * n.mailbox["m"].shape[1]},
    "size": lambda n: {"h": n.mailbox["m"].sum(1) / n.mailbox["m"].size(1)},
    "degrees of messages": lambda n: {"h": (n.mailbox["m"] ** 2 / n.mailbox["m"].shape[1] ** 0.5).sum(1)},
    "features": lambda n: {"h": n.mailbox["m"].sum(1) / n.mailbox["m"].shape[-1]},
    "logarithm of degrees": lambda n: {
        "h": n.mailbox["m"].max(1)[0] * (np.log(n.mailbox["m"].size(1) + 1) / 2.5),
        "c": n.mailbox["m"].mean(1) * (2.5 / np.log(n.mailbox["m"].size(1) + 1)),
    },
}
UNKNOWNS = {
    "the first": lambda n: {"h": n.mailbox["m"][:, 0]},
    "one of the nodes": lambda n: {"h": n.mailbox["m"].sum(1) / n.mailbox["m"].size(0)},
    "a condition on degrees": lambda n: {"h": n.mailbox["m"].sum(1) * (1 if n.mailbox["m"].size(1) == 3 else 2)},
    "larger degrees": lambda n: {"h": n.mailbox["m"].sum(1) * max(n.mailbox["m"].size(1), 3)},
    "whether there are any": lambda n: {"h": n.mailbox["m"].sum(1) * (2 if n.mailbox["m"].size(1) else 1)},
    "numbers of nodes": lambda n: {"h": n.mailbox["m"].sum(1) * n.nodes().view(-1, 1)},
    "arguments of maxima": lambda n: {"h": n.mailbox["m"].sum(1) * n.mailbox["m"].max(1)[1]},
    "median": lambda n: {"h": n.mailbox["m"].median(1)[0]},
    "equal maxima that share": lambda n: {"h": n.mailbox["m"].amax(1)},
    "over nodes": lambda n: {"h": n.mailbox["m"].sum(1) - n.data["x"].sum(0)},
    "dropout": lambda n: {"h": F.dropout(n.mailbox["m"], 0.5).sum(1)},
    "written to": lambda n: {"h": n.mailbox["m"].add_(1).sum(1)},
    "another tensor": lambda n: {"h": n.mailbox["m"].sum(1) * 0 + torch.ones(len(n.mailbox["m"]), 1)},
    "no function": lambda n: {"h": n.mailbox["m"].sum(1).tolist() and n.mailbox["m"].sum(1)},
}


def graph(kind: str = "some without") -> dgl.DGLGraph:
    generator = torch.Generator().manual_seed(0)
    source, destination = (torch.randint(3, NODES, (EDGES,), generator=generator) for _ in range(2))
    if kind == "all with":
        source, destination = (torch.cat((ends, torch.arange(NODES))) for ends in (source, destination))
    if kind == "block":
        return dgl.create_block((source, destination % 9 + 1), NODES, 11)
    return dgl.graph((source, destination), num_nodes=NODES)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.mul(4).round().div(4).requires_grad_()  # of which many are equal


def results(g, function, message=None) -> list[torch.Tensor | None]:
    """What is stored, and the gradients of all that went in."""
    torch.manual_seed(0)
    x, y = numbers(g.num_src_nodes(), WIDTH), numbers(g.num_dst_nodes(), WIDTH, seed=1)
    w, a = numbers(g.num_edges(), 1, seed=2), numbers(g.num_edges(), 1, seed=3)
    with g.local_scope():
        g.srcdata["x"] = x
        g.dstdata["x"] = y if g.is_block else x
        g.edata["w"], g.edata["a"] = w, a
        given = lambda edges: {
            "m": edges.src["x"] * edges.data["w"],
            "s": edges.src["x"] + edges.dst["x"],
            "e": edges.data["a"],
        }
        g.update_all(given if message is None else message, function)
        found = [g.dstdata[name] for name in ("h", "c") if name in g.dstdata]
    total = sum((out * out.detach().cos()).sum() for out in found)
    leaves = (x, y, w, a) if g.is_block else (x, w, a)
    return [*(out.detach() for out in found), *torch.autograd.grad(total, leaves, allow_unused=True)]


def compare(g, function, message=None) -> None:
    expected = results(g, function, message)
    with gsb.enabled("dgl"):
        reset_status()
        actual = results(g, function, message)
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert type(one) is torch.Tensor
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.short(30)
@pytest.mark.parametrize("kind", ["some without", "all with", "block"])
@pytest.mark.parametrize("name", KNOWN)
def test_functions_that_are_known(name, kind):
    compare(graph(kind), KNOWN[name])
    assert "reduce_function" not in calls()


@pytest.mark.few
@pytest.mark.parametrize("name", KNOWN)
def test_functions_that_are_known_on_few_edges(name):
    compare(graph(), KNOWN[name])
    assert "reduce_function" not in calls()


@pytest.mark.parametrize("name", ["sum", "torch.mean", "max", "deviation", "a node's own"])
def test_behind_messages_of_dgl(name):
    for message in (fn.copy_u("x", "m"), fn.u_mul_e("x", "w", "m"), fn.u_add_v("x", "x", "m")):
        compare(graph(), KNOWN[name], message)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNKNOWNS)
def test_functions_that_do_something_else_are_called_as_dgl_does(name):
    compare(graph(), UNKNOWNS[name])
    assert calls()["reduce_function"] == (0, {UNKNOWN.reason: 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_maxima_of_what_is_not_finite_are_pytorchs(value):
    g, x = graph(), numbers(NODES, WIDTH).detach()
    x[5, 1] = value

    def run():
        with g.local_scope():
            g.ndata["x"] = x
            g.update_all(fn.copy_u("x", "m"), KNOWN["max"])
            return g.ndata["h"]

    expected = run()
    with gsb.enabled("dgl"):
        torch.testing.assert_close(run(), expected, rtol=0, atol=0, equal_nan=True)


def test_errors_of_a_function_are_its_own():
    with gsb.enabled("dgl"), pytest.raises(KeyError, match="nothing"):
        results(graph(), lambda nodes: {"h": nodes.mailbox["nothing"].sum(1)})
    with gsb.enabled("dgl"), pytest.raises(ZeroDivisionError):
        results(graph(), lambda nodes: {"h": nodes.mailbox["m"].sum(1) * (1 // 0)})


def test_rows_in_another_order_choose_as_they_do_alone():
    """Of equal maxima PyTorch chooses the first, in the order of the edges' numbers."""
    destination = graph().edges()[1].sort().values
    indptr = torch.searchsorted(destination, torch.arange(NODES + 1))
    ids = torch.randperm(EDGES, generator=torch.Generator().manual_seed(0))
    compare(dgl.graph(("csc", (indptr, graph().edges()[0], ids)), num_nodes=NODES), KNOWN["max"])
