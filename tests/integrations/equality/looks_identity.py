"""Looks at what a tensor is: its type, where it may be put, and the order of things."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import Tensor, nn

from tests.integrations.equality.layer import Layer, Watch, loss_of, tensors
from tests.integrations.equality.looks import look
from tests.integrations.equality.looks_gradients import backward, grads
from tests.integrations.equality.pair import tried


def handed_out(layer: Layer) -> list[Tensor]:
    """The results and what was kept in between."""
    watch = Watch(hooked=True)
    out = layer(watch)
    return [*tensors(out), *watch.kept.values()]


def facts(t: Tensor) -> list:
    return [
        type(t) is Tensor,
        isinstance(t, nn.Parameter),
        t.requires_grad,
        t.is_leaf,
        t.grad_fn is None,
        t.retains_grad,
        t.is_contiguous(),
        list(t.stride()) if t.is_contiguous() else None,
        t.storage_offset(),
        t.element_size(),
        t.dtype,
        str(t.device),
        str(t.layout),
        t.is_inference(),
        t.output_nr,
        t._is_view() if t.is_leaf else None,
        torch.overrides.has_torch_function((t,)),
        type(t.data) is Tensor,
        type(t.detach()) is Tensor,
        hash(t) == id(t),
    ]


@look("facts", between=True)
def facts_of_all(layer):
    return [facts(t) for t in handed_out(layer)]


@look("types of gradients", between=True)
def types_of_gradients(layer):
    watch = Watch(hooked=True)
    loss = loss_of(layer(watch))
    found = grads(loss, {**watch.wanted, **layer.inputs}, allow_unused=True)
    return {name: type(grad).__name__ for name, grad in found.items()} if isinstance(found, dict) else found


@look("Parameter of it", between=True)
def parameter_of(layer):
    return [tried(lambda t=t: nn.Parameter(t.detach())) for t in handed_out(layer)]


@look("a buffer of it", between=True)
def buffer_of(layer):
    def registered(t):
        module = nn.Module()
        module.register_buffer("kept", t.detach())
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        module.load_state_dict(torch.load(file, weights_only=True))
        return [module.kept, copy.deepcopy(module).kept]

    return [tried(registered, t) for t in handed_out(layer)]


@look("detach_", between=True)
def detached_in_place(layer):
    return [tried(t.detach_) for t in handed_out(layer)]


@look("requires_grad_ and leaves", between=True)
def as_leaf(layer):
    found = []
    for t in handed_out(layer):
        leaf = t.detach().requires_grad_()
        (leaf**2).sum().backward()
        found += [leaf, leaf.grad, tried(lambda t=t: t.requires_grad_(False))]
    return found


@look("pickle, deepcopy and save", between=True)
def pickled(layer):
    def saved(t):
        file = io.BytesIO()
        torch.save(t, file)
        file.seek(0)
        return torch.load(file)

    found = []
    for t in handed_out(layer):
        detached = t.detach()
        for copied in (lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy, copy.copy, saved):
            found += [tried(copied, detached), tried(copied, t)]
    return found


@look("NumPy and memory", between=True)
def memory(layer):
    found = []
    for t in handed_out(layer):
        detached = t.detach()
        found += [tried(detached.numpy), tried(t.numpy), tried(t.tolist), tried(lambda t=t: len(t))]
        found += [tried(lambda t=detached: bool(t.data_ptr()) or not t.numel())]
        found += [tried(lambda t=detached: t.untyped_storage().nbytes() >= t.numel() * t.element_size())]
        found += [tried(lambda t=detached: t.as_strided((2, 2), (1, 1)))]
        found += [tried(lambda t=detached: torch.from_numpy(t.numpy()))]
        found += [tried(lambda t=detached: t.clone().share_memory_().is_shared())]
        found += [tried(lambda t=detached: torch.frombuffer(t.numpy(), dtype=t.dtype))]
    return found


@look("words of it", between=True)
def printed(layer):
    return [[repr(t.detach().round()).split("(")[0], f"{t.flatten()[0].item():.4f}"] for t in handed_out(layer)]


@look("indexing and iterating", between=True)
def indexed(layer):
    found = []
    for t in handed_out(layer):
        found += [t[0], t[-1:], t[:, :1], t[t[:, 0].flatten()[: len(t)].argsort()[:2] % len(t)] if t.dim() > 1 else t]
        found += list(t)[:2] + list(t.unbind(0))[:2] + list(t.split(3))[:2]
    return found


@look("alias", between=True)
def aliases(layer):
    """Views share memory with what they are views of."""
    found = []
    for t in handed_out(layer):
        t = t.detach()
        view = t.view(-1)
        view[0] = 7
        found += [t, view, view.data_ptr() == t.data_ptr(), view._base is None or view._base.shape == t.shape]
    return found


@look("use as an operand of everything", between=True)
def operands(layer):
    found = []
    for t in handed_out(layer):
        found += [
            tried(torch.stack, [t, t]),
            tried(torch.einsum, "i...->...", t),
            tried(torch.linalg.vector_norm, t),
            tried(torch.nn.functional.layer_norm, t, t.shape[1:]) if t.dim() > 1 else None,
            tried(torch.sparse.mm, torch.eye(len(t), dtype=t.dtype).to_sparse(), t.flatten(1)),
            tried(lambda t=t: t.new_zeros(2)),
            tried(torch.zeros_like, t),
            tried(torch.allclose, t, t),
            tried(torch.nn.utils.rnn.pad_sequence, [t, t[:2]]),
            tried(torch.utils._pytree.tree_map, lambda x: x * 2, {"a": t}),
        ]
    return found


@look("order of dicts")
def orders(layer):
    out = layer()
    names = list(out) if isinstance(out, dict) else None
    dropped = [torch.nn.functional.dropout(t, 0.5) for t in tensors(out)]
    return [names, dropped, list(layer.module.state_dict()) if layer.module is not None else None]


@look("random numbers", between=True)
def random_numbers(layer):
    """Draws in between, and those that follow."""
    out = layer(Watch(lambda t: nn.functional.dropout(t, 0.4)))
    return [out, torch.rand(3), backward(loss_of(out), layer), torch.randperm(5)]


@look("DGL's and PyG's errors")
def errors(layer):
    """Features of too few rows, of no rows, of other types and of other dimensions."""
    x = layer.inputs["x"].detach()
    wrong = [x[:-3], x[:0], x.float(), x.long(), x[:, :1], x.unsqueeze(1), x.tolist(), None, x.to_sparse()]
    return [tried(lambda other=other: layer(x=other)) for other in wrong]
