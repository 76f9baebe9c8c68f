"""Looks through batched, forward-mode and functional gradients, checkpoints, autocast and Dynamo."""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward_ad
from torch.autograd import functional as AF
from torch.utils.checkpoint import checkpoint

from tests.integrations.equality.layer import Watch, loss_of, tensors
from tests.integrations.equality.looks import look
from tests.integrations.equality.looks_gradients import backward, grads
from tests.integrations.equality.pair import tried


def cotangents(out: torch.Tensor, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randn(count, *out.shape, dtype=torch.float64, generator=generator).to(out.dtype)


def first_of(layer, x, **others):
    return tensors(layer(x=x, **others))[0]


@look("batched gradients")
def batched(layer):
    out = first_of(layer, layer.inputs["x"])
    return grads(out, layer.leaves, grad_outputs=cotangents(out, 3), is_grads_batched=True, allow_unused=True)


@look("batched gradients of what is in between", between=True)
def batched_between(layer):
    watch = Watch(hooked=True)
    out = tensors(layer(watch))[0]
    options = dict(grad_outputs=cotangents(out, 3), is_grads_batched=True, allow_unused=True)
    return grads(out, {**watch.wanted, "x": layer.inputs["x"]}, **options)


@look("vmap over autograd.grad")
def vmap_of_grad(layer):
    x = layer.inputs["x"]
    out = first_of(layer, x)

    def pull(cotangent):
        return torch.autograd.grad(out, x, cotangent, retain_graph=True)[0]

    return tried(torch.vmap(pull), cotangents(out, 3))


@look("jacobian")
def jacobian(layer):
    x = layer.inputs["x"].detach()
    return [
        tried(AF.jacobian, lambda x: first_of(layer, x).sum(0), x),
        tried(AF.jacobian, lambda x: first_of(layer, x).sum(0), x, vectorize=True),
        tried(AF.jacobian, lambda x: first_of(layer, x).sum(0), x, create_graph=True),
    ]


@look("jacobian in forward mode")
def jacobian_forward(layer):
    function = lambda x: first_of(layer, x).sum(0)
    x = layer.inputs["x"].detach()
    return tried(AF.jacobian, function, x, vectorize=True, strategy="forward-mode")


@look("hessian", second=True)
def hessian(layer):
    function = lambda x: first_of(layer, torch.cat([x, layer.inputs["x"].detach()[2:]])).pow(2).sum()
    return tried(AF.hessian, function, layer.inputs["x"].detach()[:2])


@look("hessian, vectorized", second=True)
def hessian_vectorized(layer):
    function = lambda x: first_of(layer, torch.cat([x, layer.inputs["x"].detach()[2:]])).pow(2).sum()
    return tried(AF.hessian, function, layer.inputs["x"].detach()[:2], vectorize=True)


@look("products with a jacobian and a hessian", second=True)
def products(layer):
    x = layer.inputs["x"].detach()
    function, direction = (lambda x: first_of(layer, x)), torch.ones_like(x)
    loss = lambda x: first_of(layer, x).pow(2).sum()
    return [
        tried(AF.vjp, loss, x),
        tried(AF.jvp, function, x, direction),
        tried(AF.hvp, loss, x, direction),
        tried(AF.vhp, loss, x, direction),
    ]


@look("jvp of the layer")
def jvp(layer):
    x = layer.inputs["x"].detach()
    return tried(torch.func.jvp, lambda x: first_of(layer, x), (x,), (torch.ones_like(x),))


@look("jvp of a gradient", second=True)
def jvp_of_grad(layer):
    """The forward-mode derivative of a function that asks for a gradient."""
    x = layer.inputs["x"]
    out = first_of(layer, x)

    def pull(cotangent):
        return torch.autograd.grad(out, x, cotangent, retain_graph=True)[0]

    return tried(torch.func.jvp, pull, (torch.ones_like(out.detach()),), (cotangents(out, 1)[0],))


@look("dual grad_outputs", second=True)
def dual_grad_outputs(layer):
    out = first_of(layer, layer.inputs["x"])
    found = {}
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones_like(out).detach(), cotangents(out, 1)[0])
        result = grads(out, layer.leaves, grad_outputs=dual, allow_unused=True)
        if not isinstance(result, dict):
            return result
        for name, grad in result.items():
            found[name] = None if grad is None else list(forward_ad.unpack_dual(grad))
            if found[name] is not None:  # ordinary tensors, after the level has ended
                found[name] = [None if one is None else one.detach().clone() for one in found[name]]
    return found


@look("dual features")
def dual_features(layer):
    x = layer.inputs["x"].detach()
    with forward_ad.dual_level():
        out = tried(first_of, layer, forward_ad.make_dual(x, torch.ones_like(x)))
        if not isinstance(out, torch.Tensor):
            return out
        return [None if one is None else one.detach().clone() for one in forward_ad.unpack_dual(out)]


@look("func.grad")
def func_grad(layer):
    x = layer.inputs["x"].detach()
    function = lambda x: loss_of(layer(x=x))
    return tried(torch.func.grad(function), x)


@look("func.vjp")
def func_vjp(layer):
    x = layer.inputs["x"].detach()

    def pulled():
        out, pull = torch.func.vjp(lambda x: first_of(layer, x), x)
        return [out, pull(torch.ones_like(out))]

    return tried(pulled)


@look("func.jacrev and jacfwd")
def func_jacobians(layer):
    x = layer.inputs["x"].detach()
    function = lambda x: first_of(layer, x).sum(0)
    return [tried(torch.func.jacrev(function), x), tried(torch.func.jacfwd(function), x)]


@look("func.hessian", second=True)
def func_hessian(layer):
    rest = layer.inputs["x"].detach()[2:]
    function = lambda x: first_of(layer, torch.cat([x, rest])).pow(2).sum()
    return tried(torch.func.hessian(function), rest.new_ones(2, rest.shape[1]))


@look("vmap of the layer")
def vmap(layer):
    x = layer.inputs["x"].detach()
    return tried(torch.vmap(lambda x: first_of(layer, x)), torch.stack([x, x * 2]))


@look("vmap of func.grad of functional_call")
def vmap_of_functional(layer):
    """A gradient of the parameters for each of several inputs, with several sets of parameters."""
    if layer.module is None:
        return None
    parameters = {name: leaf.detach() for name, leaf in layer.module.named_parameters()}
    if not parameters:
        return None
    x = layer.inputs["x"].detach()

    def loss(parameters, x):
        with torch.nn.utils.stateless._reparametrize_module(layer.module, parameters):
            return loss_of(layer(x=x))

    one = tried(torch.func.grad(loss), parameters, x)
    return [one, tried(torch.vmap(torch.func.grad(loss), (None, 0)), parameters, torch.stack([x, x * 2]))]


@look("checkpoint")
def checkpointed(layer):
    out = tried(lambda: checkpoint(lambda x: layer(x=x), layer.inputs["x"], use_reentrant=False))
    return [out, backward(loss_of(out), layer)] if not isinstance(out, tuple) or tensors(out) else out


@look("checkpoint, reentrant")
def checkpointed_reentrant(layer):
    def function(x):
        return tuple(tensors(layer(x=x)))

    out = checkpoint(function, layer.inputs["x"], use_reentrant=True)
    return [out, backward(loss_of(out), layer)]


@look("checkpoint of what is in between", between=True)
def checkpointed_between(layer):
    """Work on a message goes through a checkpoint, which runs it anew when the layer has long ended."""
    act = lambda tensor: checkpoint(lambda t: (t * 2).tanh(), tensor, use_reentrant=False)
    out = layer(Watch(act))
    return [out, backward(loss_of(out), layer)]


@look("autocast", rough=True)
def autocast(layer):
    with torch.autocast("cpu", torch.bfloat16):
        out = layer()
    return [one.dtype for one in tensors(out)], backward(loss_of([one.double() for one in tensors(out)]), layer)


@look("autocast of features in float32", rough=True)
def autocast_single(layer):
    """Parameters and features of the type that autocast lowers."""
    if layer.module is not None:
        layer.module.float()
    inputs = {name: tensor.detach().float().requires_grad_() for name, tensor in layer.inputs.items()}
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(**inputs)
    loss = sum(one.double().mean() for one in tensors(out))
    return [out, grads(loss, inputs, allow_unused=True)]


@look("autocast within", rough=True, between=True)
def autocast_within(layer):
    """Autocast in the middle of a layer."""

    def act(tensor):
        with torch.autocast("cpu", torch.bfloat16):
            return (tensor * 2).to(torch.float64)

    out = layer(Watch(act))
    return [out, backward(loss_of(out), layer)]


@look("float32")
def single(layer):
    if layer.module is not None:
        layer.module.float()
    inputs = {name: tensor.detach().float().requires_grad_() for name, tensor in layer.inputs.items()}
    out = layer(**inputs)
    return [out, grads(sum(one.mean() for one in tensors(out)), inputs, allow_unused=True)]


@look("a mode of dispatch")
def dispatch_modes(layer):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        out = layer()
    return [out, backward(loss_of(out), layer)]


@look("anomaly mode")
def anomaly(layer):
    with torch.autograd.set_detect_anomaly(True):
        out = layer()
        return [out, backward(loss_of(out), layer)]


@look("compiled", compiled=True)
def compiled(layer):
    function = torch.compile(lambda x: layer(x=x), backend="eager")
    out = function(layer.inputs["x"])
    return [out, backward(loss_of(out), layer)]


@look("compiled with autograd", compiled=True)
def compiled_autograd(layer):
    function = torch.compile(lambda x: layer(x=x), backend="aot_eager")
    out = function(layer.inputs["x"])
    return [out, backward(loss_of(out), layer)]


@look("a compiled function within", compiled=True, between=True)
def compiled_within(layer):
    function = torch.compile(lambda t: (t * 2).tanh(), backend="eager")
    out = layer(Watch(function))
    return [out, backward(loss_of(out), layer)]


@look("a compiled function within, fullgraph", compiled=True, between=True)
def compiled_within_fullgraph(layer):
    function = torch.compile(lambda t: (t * 2).tanh(), backend="eager", fullgraph=True)
    out = layer(Watch(function))
    return [out, backward(loss_of(out), layer)]


@look("TorchScript within", between=True)
def script_within(layer):
    out = layer(Watch(_SCRIPT))
    return [out, backward(loss_of(out), layer)]


@torch.jit.script
def _SCRIPT(t: torch.Tensor) -> torch.Tensor:
    return (t * 2).tanh()
