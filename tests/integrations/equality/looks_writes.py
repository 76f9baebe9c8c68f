"""Looks after writes in place: of every sort, at every point, into features, parameters, messages and results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.integrations.equality.layer import Layer, Watch, loss_of, tensors
from tests.integrations.equality.looks import look
from tests.integrations.equality.looks_gradients import backward
from tests.integrations.equality.pair import tried

aten = torch.ops.aten


@torch.jit.script
def _script(t: Tensor) -> None:
    t.mul_(2).add_(1)


@torch.jit.script
def _script_functional(t: Tensor) -> Tensor:
    return torch.relu_(t)


def _assign(t: Tensor) -> None:
    t[: max(1, t.shape[0] // 2)] = 0.25


def _assign_mask(t: Tensor) -> None:
    t[t > 0] = 0.5


def _swap_storage(t: Tensor) -> None:
    t.set_(t.detach().clone() * 2)


def _free_storage(t: Tensor) -> None:
    """A storage is emptied and filled anew, as offloading does."""
    before = t.detach().clone()
    storage = t.untyped_storage()
    size = storage.size()
    storage.resize_(0)
    storage.resize_(size)
    with torch.no_grad():
        t.copy_(before * 3)


QUIET: dict[str, Callable[[Tensor], object]] = {
    "data": lambda t: t.data.mul_(2).add_(1),
    "data =": lambda t: setattr(t, "data", t.detach() * 2 + 1),
    "detach": lambda t: t.detach().add_(1),
    "numpy": lambda t: t.detach().numpy().__imul__(2),
    "copyto": lambda t: np.copyto(t.detach().numpy(), 0.5),
    "dlpack": lambda t: torch.from_dlpack(t.detach()).add_(1),
    "storage": _free_storage,
}
"""Writes that PyTorch's versions do not tell all of: its gradients are then those of whatever it had saved by
reference, which nobody can mean, so values alone are looked at."""

WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda t: t.add_(1),
    "+=": lambda t: t.__iadd__(1),
    "copy_": lambda t: t.copy_(t.detach().flip(0) * 2),
    "zero_": lambda t: t.zero_(),
    "[...] =": _assign,
    "[mask] =": _assign_mask,
    "out=": lambda t: torch.mul(t.detach(), 2, out=t.detach()),
    "relu_": lambda t: F.relu(t, inplace=True),
    "leaky_relu_": lambda t: F.leaky_relu(t, 0.1, inplace=True),
    "elu_": lambda t: F.elu(t, inplace=True),
    "hardtanh_": lambda t: F.hardtanh(t, inplace=True),
    "dropout_": lambda t: F.dropout(t, 0.5, inplace=True),
    "normal_": lambda t: t.normal_(),
    "aten": lambda t: aten.add_.Scalar(t, 1),
    "aten relu_": lambda t: aten.relu_(t),
    "foreach": lambda t: torch._foreach_mul_([t], 2.0),
    "script": _script,
    "script relu_": _script_functional,
    "view": lambda t: t.view(-1).mul_(2),
    "row": lambda t: t[0].mul_(5),
    "set_": _swap_storage,
    "index_add_": lambda t: t.index_add_(0, torch.tensor([0]), torch.ones_like(t.detach()[:1])),
    "clip_grad": lambda t: t.clamp_(-0.5, 0.5),
    **QUIET,
}


def quietly(write):
    """The write under no_grad."""

    def function(tensor):
        with torch.no_grad():
            write(tensor)

    return function


def _none(loss, layer) -> None:
    loss.backward()


def _after(layer: Layer, write, watch: Watch, targets, gradients) -> list:
    """Forward, write into each target, and all that is seen afterwards."""
    out = layer(watch)
    raised = [tried(lambda t=t: write(t) and None) for t in targets(layer, watch, out)]
    return [raised, out, dict(watch.kept), layer.inputs, gradients(loss_of(out), layer)]


TARGETS = {
    "features": lambda layer, watch, out: list(layer.inputs.values()),
    "parameters": lambda layer, watch, out: list(layer.module.parameters()) if layer.module is not None else [],
    "results": lambda layer, watch, out: tensors(out),
    "what is in between": lambda layer, watch, out: list(watch.kept.values()),
}


def _register(name: str, write) -> None:
    gradients = _none if name in QUIET else backward

    for target, targets in TARGETS.items():

        @look(f"{name} into {target}, after", write=True, between=target == "what is in between")
        def after(layer, targets=targets):
            return _after(layer, quietly(write), Watch(hooked=True), targets, gradients)

    @look(f"{name} into features, within", write=True, between=True)
    def within(layer):
        """Once, when the first tensor in between is there."""
        raised = []

        def act(tensor):
            if not raised:
                raised.append(tried(lambda: quietly(write)(layer.inputs["x"])))

        watch = Watch(act)
        out = layer(watch)
        return [raised, out, dict(watch.kept), gradients(loss_of(out), layer)]

    @look(f"{name} into what is in between, within", write=True, between=True)
    def into_messages(layer):
        raised = []
        watch = Watch(lambda tensor: raised.append(tried(lambda: quietly(write)(tensor))))
        out = layer(watch)
        return [raised, out, dict(watch.kept), gradients(loss_of(out), layer)]

    @look(f"{name} with gradients", write=True, between=True)
    def with_gradients(layer):
        """The features are no leaf, and the write is part of the history, within and after."""
        raised = []
        x = layer.inputs["x"] * 1.5
        watch = Watch(lambda tensor: raised.append(tried(lambda: write(tensor) and None)))
        out = layer(watch, x=x)
        half = x * 0.5
        raised.append(tried(lambda: write(x) and None))
        return [raised, out, half, x, gradients(loss_of([out, half, x]), layer)]


for _name, _write in WRITES.items():
    _register(_name, _write)


@look("h += conv(h)")
def residual(layer):
    h = layer.inputs["x"].clone()
    out = tensors(layer(x=h))[0].flatten(1).mean(1, keepdim=True)
    h += out
    return [h, backward(loss_of(h), layer)]


@look("h += conv(h), of one shape")
def residual_of_result(layer):
    h = layer.inputs["x"].clone()
    out = tensors(layer(x=h))[0]
    h += out if out.shape == h.shape else out.mean()
    out.detach_()
    return [h, out, backward(loss_of(h), layer)]


@look("a product whose factor is activated in place")
def activated(layer):
    h = layer.inputs["x"] * 2
    g = h * 0.5
    F.relu(h, inplace=True)
    out = layer(x=g)
    return [out, h, backward(loss_of([out, h]), layer)]


@look("steps of an optimiser")
def steps(layer):
    optimiser = torch.optim.SGD(list(layer.leaves.values()), 0.01)
    losses = []
    for _ in range(3):
        optimiser.zero_grad()
        loss = loss_of(layer())
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return [losses, layer.leaves]


@look("a step before what was kept is read", between=True)
def step_before_reading(layer):
    watch = Watch(hooked=True)
    out = layer(watch)
    seen = backward(loss_of(out), layer)
    torch.optim.SGD(list(layer.leaves.values()), 0.1).step()
    return [seen, out, dict(watch.kept), {name: tensor.detach() * 2 for name, tensor in watch.kept.items()}]


@look("a buffer that the next batch refills", between=True)
def refilled(layer):
    buffer = layer.inputs["x"].detach().clone()
    watch, results = Watch(hooked=True), []
    for number in range(2):
        with torch.no_grad():
            buffer.copy_(layer.inputs["x"] * (number + 1))
        results.append(layer(watch, x=buffer))
    with torch.no_grad():
        buffer.fill_(0)
    return [results, dict(watch.kept)]


@look("the version of each tensor", between=True)
def versions(layer):
    """Nothing writes into what a program gave; results count writes from where they begin."""
    watch = Watch(hooked=True)
    out = layer(watch)
    backward(loss_of(out), layer)
    results = [tensor.detach() for tensor in tensors(out)]
    begun = [tensor._version for tensor in results]
    for tensor in results:
        tensor.add_(1)
    return [
        {name: tensor._version for name, tensor in layer.leaves.items()},
        [tensor._version - before for tensor, before in zip(results, begun)],
        {name: isinstance(tensor._version, int) for name, tensor in watch.kept.items()},
    ]
