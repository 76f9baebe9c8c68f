"""Looks at gradients: of inputs, of what is in between, by hooks, and of gradients."""

from __future__ import annotations

import torch

from tests.integrations.equality.layer import Layer, Watch, loss_of, tensors
from tests.integrations.equality.looks import look
from tests.integrations.equality.pair import tried


def grads(loss, wanted, **options):
    """Gradients by name, or the error; of nothing, nothing."""
    if not wanted:
        return {}
    found = tried(torch.autograd.grad, loss, list(wanted.values()), **options)
    return dict(zip(wanted, found)) if isinstance(found, tuple) and type(found) is tuple else found


def backward(loss, layer: Layer, **options):
    """The gradient that each leaf then has, or the error."""
    raised = tried(loss.backward, **options)
    return {name: leaf.grad for name, leaf in layer.leaves.items()} if raised is None else raised


@look("value")
def value(layer):
    return layer()


@look("gradients")
def gradients(layer):
    out = layer()
    return [out, backward(loss_of(out), layer)]


@look("two backward passes")
def two_backward_passes(layer):
    out = layer()
    loss = loss_of(out)
    return [backward(loss, layer, retain_graph=True), backward(loss, layer), backward(loss, layer)]


@look("forward again")
def forward_again(layer):
    first, second = layer(), layer()
    return [first, second, backward(loss_of(second) + loss_of(first), layer)]


@look("retain_grad before use", between=True)
def retain_before(layer):
    def act(tensor):
        if tensor.requires_grad:
            tensor.retain_grad()

    watch = Watch(act)
    out = layer(watch)
    seen = backward(loss_of(out), layer)
    return [seen, {name: tensor.grad for name, tensor in watch.wanted.items()}]


@look("retain_grad after use", between=True)
def retain_after(layer):
    watch = Watch(hooked=True)
    out = layer(watch)
    raised = {name: tried(tensor.retain_grad) for name, tensor in watch.wanted.items()}
    results = [tensor for tensor in tensors(out) if tensor.requires_grad]
    raised["results"] = [tried(tensor.retain_grad) for tensor in results]
    seen = backward(loss_of(out), layer)
    kept = {name: tensor.grad for name, tensor in watch.wanted.items() if not tensor.is_leaf}
    return [raised, seen, kept, [tensor.grad for tensor in results]]


@look("hooks that scale before use", between=True)
def hooks_before(layer):
    def act(tensor):
        if tensor.requires_grad:
            tensor.register_hook(lambda grad: grad * 3)

    return backward(loss_of(layer(Watch(act))), layer)


@look("hooks that scale after use", between=True)
def hooks_after(layer):
    watch = Watch(hooked=True)
    out = layer(watch)
    raised = []
    for tensor in [*watch.wanted.values(), *tensors(out)]:
        if tensor.requires_grad:
            raised.append(tried(lambda tensor=tensor: tensor.register_hook(lambda grad: grad * 3) and None))
    return [raised, backward(loss_of(out), layer)]


@look("hooks that record", between=True)
def hooks_that_record(layer):
    watch, told = Watch(hooked=True), {}
    out = layer(watch)

    def record(name):
        def hook(grad):
            told.setdefault(name, []).append(grad.clone())

        return hook

    for name, tensor in [*watch.wanted.items(), *layer.leaves.items()]:
        tensor.register_hook(record(name))
    seen = backward(loss_of(out), layer)
    return [seen, {name: told.get(name) for name in (*watch.wanted, *layer.leaves)}]


@look("a hook that writes", between=True)
def hook_that_writes(layer):
    watch = Watch(hooked=True)
    out = layer(watch)
    for tensor in watch.wanted.values():
        tensor.register_hook(lambda grad: grad.clamp_(-1, 1))
    return backward(loss_of(out), layer)


@look("hooks on modules")
def hooks_on_modules(layer):
    told = []

    def forward(module, arguments, out):
        told.append([type(module).__name__, out])
        for tensor in tensors(out):
            if tensor.requires_grad:
                tensor.register_hook(lambda grad: grad * 2)

    handles = []
    if layer.module is not None:
        handles = [part.register_forward_hook(forward) for part in layer.module.modules()]
        handles += [
            part.register_full_backward_hook(lambda module, given, grads: told.append(list(given)))
            for part in layer.module.modules()
            if isinstance(part, torch.nn.Linear)
        ]
    out = layer()
    seen = backward(loss_of(out), layer)
    for handle in handles:
        handle.remove()
    return [seen, told]


@look("grad of what is in between", between=True)
def grad_between(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    return {name: grads(loss, {name: tensor}, retain_graph=True) for name, tensor in watch.wanted.items()}


@look("grad of all at once, allow_unused", between=True)
def grad_unused(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    return grads(loss, {**watch.wanted, **layer.leaves}, allow_unused=True)


@look("grad of all at once, materialize_grads", between=True)
def grad_materialized(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    return grads(loss, {**layer.leaves, **watch.wanted}, materialize_grads=True)


@look("backward to what is in between", between=True)
def backward_inputs(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    wanted = {**watch.wanted, **layer.inputs}
    raised = tried(loss.backward, inputs=list(wanted.values()))
    return {name: tensor.grad for name, tensor in wanted.items()} if raised is None else raised


@look("a loss of what is in between", between=True)
def loss_between(layer):
    watch = Watch(hooked=True)
    out = layer(watch)
    loss = loss_of(out) + sum((tensor.sin().sum() for tensor in watch.wanted.values()), torch.zeros(()))
    return backward(loss, layer)


@look("an inner gradient", between=True)
def inner_gradient(layer):
    """A gradient that is asked for while the layer runs, of what is in between with respect to what came first."""
    found, first = [], []

    def act(tensor):
        if tensor.requires_grad:
            first.append(tensor)
            found.append(tried(torch.autograd.grad, (tensor**2).sum(), first[0], retain_graph=True, allow_unused=True))

    out = layer(Watch(act))
    return [found, backward(loss_of(out), layer)]


@look("second gradients of leaves", second=True)
def second_of_leaves(layer):
    first = grads(loss_of(layer()), layer.leaves, create_graph=True, allow_unused=True)
    if not isinstance(first, dict):
        return first
    there = {name: grad for name, grad in first.items() if grad is not None and grad.requires_grad}
    return [first, grads(loss_of(there), layer.leaves, allow_unused=True) if there else None]


@look("second gradients of what is in between", second=True, between=True)
def second_between(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    first = grads(loss, {**watch.wanted, "x": layer.inputs["x"]}, create_graph=True, allow_unused=True)
    if not isinstance(first, dict):
        return first
    there = {name: grad for name, grad in first.items() if grad is not None and grad.requires_grad}
    return [first, grads(loss_of(there), {**layer.leaves, **watch.wanted}, allow_unused=True) if there else None]


@look("forces that are trained", second=True)
def forces(layer):
    """A gradient with respect to the features, which is part of a loss of the parameters."""
    out = layer()
    force = tried(torch.autograd.grad, loss_of(out), layer.inputs["x"], create_graph=True, allow_unused=True)
    if not (isinstance(force, tuple) and isinstance(force[0], torch.Tensor) and force[0].requires_grad):
        return force
    return [force[0], backward((force[0] ** 2).sum() + loss_of(out), layer)]


@look("gradients of parts of a result")
def parts(layer):
    out = tensors(layer())[0]
    return [
        grads(out[3].sum(), layer.leaves, retain_graph=True, allow_unused=True),
        grads(out.sum(), layer.leaves, retain_graph=True, allow_unused=True),  # an expanded gradient
        grads(out.T.contiguous().T.exp().sum(), layer.leaves, retain_graph=True, allow_unused=True),
        grads(out[:0].sum(), layer.leaves, allow_unused=True),
    ]


@look("frozen leaves")
def frozen(layer):
    layer.inputs["x"].requires_grad_(False)
    out = layer()
    return [out, backward(loss_of(out), layer)] if tensors(out)[0].requires_grad else out


@look("no_grad and inference_mode")
def without_gradients(layer):
    watch = Watch(hooked=True)
    with torch.no_grad():
        first = layer(watch)
        kept = dict(watch.kept)
    with torch.inference_mode():
        second = [(one.clone(), one.is_inference()) for one in tensors(layer())]
    return [first, kept, second]


@look("saved tensors in hooks")
def saved_tensors(layer):
    """Saved tensors are packed and unpacked, as offloading does."""
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        out = layer()
    return [out, backward(loss_of(out), layer)]
