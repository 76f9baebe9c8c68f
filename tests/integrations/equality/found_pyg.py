"""The programs of test_found.py on PyG's message passing."""

from __future__ import annotations

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import softmax

from tests.integrations.equality.pair import tried

EDGE_INDEX = torch.tensor([[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]])


def features(seed: int = 0, width: int = 3) -> Tensor:
    return torch.randn(3, width, generator=torch.Generator().manual_seed(seed)).requires_grad_()


class InnerForce(pyg.MessagePassing):
    """A message that is the gradient of a potential of its ends."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        potential = ((x_j - x_i) ** 2).sum() ** 2
        (force,) = torch.autograd.grad(potential, x_j, create_graph=True)
        return force


class Keeps(pyg.MessagePassing):
    """A layer that keeps its gathered features, its scores, its weights and its messages."""

    def __init__(self, function=lambda x: x * 1):
        super().__init__()
        self.function, self.kept = function, {}

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j, index, ptr, size_i):
        score = (x_i * x_j).sum(-1, keepdim=True)
        alpha = softmax(score, index, ptr, size_i)
        message = self.function(alpha * x_j)
        self.kept = {"x_j": x_j, "score": score, "alpha": alpha, "message": message}
        return message


class WritesWeights(Keeps):
    """A layer that overwrites some of its weights before it uses them."""

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = softmax((x_i * x_j).sum(-1, keepdim=True), index, ptr, size_i)
        with torch.no_grad():
            alpha[1] = 0.5
        self.kept = {"x_j": x_j, "alpha": alpha}
        return alpha * x_j


class Sends(pyg.MessagePassing):
    """A layer whose messages are half of the features of their sources."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j * 0.5


KEPT = ("x_j", "score", "alpha", "message")
WAYS = {
    "grad": lambda loss, kept: torch.autograd.grad(loss, kept)[0],
    "allow_unused": lambda loss, kept: torch.autograd.grad(loss, kept, allow_unused=True)[0],
    "materialize_grads": lambda loss, kept: torch.autograd.grad(loss, kept, materialize_grads=True)[0],
    "inputs": lambda loss, kept: [loss.backward(inputs=[kept]), kept.grad][1],
    "retain_grad": lambda loss, kept: [kept.retain_grad(), loss.backward(), kept.grad][2],
}


def gradient_of_kept(name: str, way: str):
    layer, x = Keeps(), features()
    out = layer(x, EDGE_INDEX)
    return WAYS[way]((out**2).sum(), layer.kept[name])


def hook_on_kept(name: str) -> list:
    layer, x, told = Keeps(), features(), []
    out = layer(x, EDGE_INDEX)
    layer.kept[name].register_hook(lambda grad: told.append(grad.clone()))
    layer.kept[name].register_hook(lambda grad: grad * 10)
    (out**2).sum().backward()
    return [told, x.grad]


def inner_force() -> list:
    x = features()
    out = InnerForce()(x, EDGE_INDEX)
    return [out, torch.autograd.grad((out**2).sum(), x)]


def compiled_within(fullgraph: bool, backend: str = "eager"):
    """A compiled function of messages, and how often Python warns."""
    import warnings

    torch._dynamo.reset()
    function = torch.compile(lambda t: torch.tanh(t) * 2, backend=backend, fullgraph=fullgraph)
    layer, x = Keeps(function), features()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        out = layer(x, EDGE_INDEX)
    # Inductor itself warns, when it is first imported
    return [out, torch.autograd.grad((out**2).sum(), x), len(told) if backend == "eager" else None]


def kept_after_step() -> list:
    """Kept tensors that are read when an optimiser has updated what they are made of."""
    x = torch.nn.Parameter(features().detach().clone())
    layer, optimiser = Keeps(), torch.optim.SGD([x], 0.5)
    (layer(x, EDGE_INDEX) ** 2).sum().backward()
    optimiser.step()
    return [dict(layer.kept), {name: kept * 2 for name, kept in layer.kept.items()}, x]


def kept_after(write) -> list:
    """Kept tensors that are read when the batch's buffer holds something else."""
    x, layer = features().detach().clone(), Keeps()
    out = layer(x, EDGE_INDEX)
    with torch.no_grad():
        write(x)
    return [out, dict(layer.kept), layer.kept["score"].detach() * 2]


def identity(put, which: str):
    """``put`` called with something that a layer hands out."""
    layer, x = (WritesWeights if which == "written alpha" else Keeps)(), features()
    out = layer(x, EDGE_INDEX)
    wanted = [layer.kept["x_j"], x]
    gradient = torch.autograd.grad((out**2).sum(), wanted, retain_graph=True, allow_unused=True)[0]
    things = {"result": out, "written alpha": layer.kept["alpha"], "gradient": gradient}
    return tried(put, things[which] if which in things else layer.kept[which])
