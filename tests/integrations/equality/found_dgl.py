"""The programs of test_found.py on DGL's graphs, with the numbers that DGL alone gives."""

from __future__ import annotations

import dgl
import dgl.function as fn
import torch
from dgl.nn.functional import edge_softmax
from torch import Tensor

from tests.integrations.equality.pair import tried

WEIGHTS_WITH_ENTROPY = [11, 39.25, 123, 17.27]
WEIGHTS_ALONE = [10, 38.76, 122, 17.18]
BY_DIFFERENCES = [[4, 4], [12, 12], [-8, -8], [12, 12]]


def small_graph():
    return dgl.graph((torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 0, 2])))


def features() -> Tensor:
    return torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)


def attend(g, h: Tensor, l: Tensor) -> tuple[Tensor, Tensor]:
    """The sum with attention, and its weights."""
    with g.local_scope():
        g.ndata["h"], g.ndata["l"] = h, l
        g.apply_edges(fn.u_add_v("l", "l", "e"))
        g.edata["a"] = edge_softmax(g, g.edata["e"])
        g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "o"))
        return g.ndata["o"], g.edata["a"]


def gradient_of_weights(entropy: bool) -> Tensor:
    """What ``retain_grad`` of the weights gives."""
    o, a = attend(small_graph(), features(), torch.tensor([[0.1], [0.5], [0.9]], requires_grad=True))
    a.retain_grad()
    loss = (o**2).sum()
    if entropy:
        loss = loss + (a * a.log()).sum()
    loss.backward()
    return a.grad


def scaled_by_hook() -> list:
    """Gradients of features and logits where a hook on the weights scales theirs."""
    h, l = features(), torch.tensor([[0.1], [0.5], [0.9]], requires_grad=True)
    o, a = attend(small_graph(), h, l)
    a.register_hook(lambda grad: grad * 100)
    (o**2).sum().backward()
    return [h.grad, l.grad]


def energy_of_differences(reduce=fn.sum, within: bool = True):
    """Features, differences on the edges, and the sum of squares of their sums."""
    g, x = small_graph(), features()

    def steps(g):
        g.ndata["x"] = x
        g.apply_edges(fn.v_sub_u("x", "x", "r"))
        r = g.edata["r"]
        g.update_all(fn.copy_e("r", "m"), reduce("m", "o"))
        return x, r, (g.ndata["o"] ** 2).sum()

    if not within:
        return steps(g.local_var())
    with g.local_scope():
        return steps(g)


WAYS = {
    "grad": lambda x, r, energy: torch.autograd.grad(energy, r)[0],
    "grad of both": lambda x, r, energy: torch.autograd.grad(energy, [r, x])[0],
    "allow_unused": lambda x, r, energy: torch.autograd.grad(energy, r, allow_unused=True)[0],
    "materialize_grads": lambda x, r, energy: torch.autograd.grad(energy, r, materialize_grads=True)[0],
    "create_graph": lambda x, r, energy: torch.autograd.grad(energy, r, create_graph=True)[0],
    "inputs": lambda x, r, energy: [energy.backward(inputs=[r]), r.grad][1],
    "retain_grad": lambda x, r, energy: [r.retain_grad(), energy.backward(), r.grad][2],
}
"""How a gradient with respect to something of the edges is asked for."""


def hooked(x, r, energy) -> list[Tensor]:
    """What a hook on the differences is told."""
    told: list[Tensor] = []
    r.register_hook(lambda grad: told.append(grad.clone()))
    energy.backward()
    return [*told, x.grad]


def second_of_linear(op: str, reduce, shapes: tuple[tuple, tuple]):
    """Forces of a message that is linear in both operands, which are part of a loss."""
    g = small_graph()
    x = torch.linspace(-1, 1, 3 * shapes[0][0] * shapes[0][1]).view(3, *shapes[0]).requires_grad_()
    w = torch.linspace(0.5, 2, 4 * shapes[1][0] * shapes[1][1]).view(4, *shapes[1]).requires_grad_()
    with g.local_scope():
        g.ndata["x"], g.edata["w"] = x, w
        g.update_all(getattr(fn, op)("x", "w", "m"), reduce("m", "o"))
        out = g.ndata["o"]
    looks = []
    for loss in (out.sum(), (out**2).sum()):
        first = torch.autograd.grad(loss, [x, w], create_graph=True)
        total = sum((grad**2).sum() for grad in first)
        looks += [*first, tried(lambda total=total: torch.autograd.grad(total, [x, w], allow_unused=True))]
    return looks


def checkpoint_in_scope(reentrant: bool):
    """A checkpoint of a whole scope, and one within a scope, which end before the backward pass."""
    from torch.utils.checkpoint import checkpoint

    g, h, l = small_graph(), features(), torch.tensor([[0.1], [0.5], [0.9]], requires_grad=True)
    whole = checkpoint(lambda h, l: attend(g, h, l), h, l, use_reentrant=reentrant)
    with g.local_scope():
        g.ndata["h"] = h
        g.apply_edges(fn.u_sub_v("h", "h", "d"))
        d = g.edata["d"]
        g.edata["s"] = checkpoint(lambda d: torch.tanh(d * 0.1) * d, d, use_reentrant=reentrant)
        g.update_all(fn.copy_e("s", "m"), fn.sum("m", "o"))
        part = g.ndata["o"]
    ((whole[0] ** 2).sum() + whole[1].sin().sum() + (part**2).sum()).backward()
    return [whole, part, h.grad, l.grad]


def checkpoint_without_scope(reentrant: bool):
    """A checkpoint within a scope, which runs its function anew when the scope has ended."""
    from torch.utils.checkpoint import checkpoint

    g, h, l = small_graph(), features(), torch.tensor([[0.1], [0.5], [0.9]], requires_grad=True)

    def function(h, l):
        g.ndata["h"], g.ndata["l"] = h, l
        g.apply_edges(fn.u_add_v("l", "l", "e"))
        g.edata["a"] = edge_softmax(g, torch.nn.functional.leaky_relu(g.edata["e"], 0.2))
        g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "o"))
        return g.ndata["o"]

    with g.local_scope():
        out = checkpoint(function, h, l, use_reentrant=reentrant)
    (out**2).sum().backward()
    return [out, h.grad, l.grad]


def read_after(write, op=fn.u_sub_v, detached: bool = False):
    """Values on edges that are read after the features were written to."""
    g, x = small_graph(), features().detach().clone()
    with g.local_scope():
        g.ndata["x"] = x
        g.apply_edges(op("x", "x", "r"))
        r = g.edata["r"]
        with torch.no_grad():
            write(x)
        return r.detach() * 2 if detached else [r * 2, g.edata["r"], x]


def embedding_after_step():
    """Values on edges of an embedding, which an optimiser has updated when they are read."""
    g = small_graph()
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(3, 2)
    optimiser = torch.optim.SGD(embedding.parameters(), 0.5)
    with g.local_scope():
        g.ndata["x"] = embedding.weight
        g.apply_edges(fn.u_mul_v("x", "x", "r"))
        r = g.edata["r"]
        g.update_all(fn.copy_e("r", "m"), fn.sum("m", "o"))
        (g.ndata["o"] ** 2).sum().backward()
        optimiser.step()
        return [r, g.edata["r"] * 1, embedding.weight]
