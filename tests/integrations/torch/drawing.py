"""What tests of PyTorch's draws compare: bits, and the generator's state."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OTHERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PROBABILITIES = (0.0, 1.0, 0.1, 0.5, 0.9999)
SIZES = (0, 1, 311, 312, 313, 623, 624, 625, 100_003)
DROPOUTS = (F.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.dropout1d, F.dropout2d, F.dropout3d)


def counted(operator: str) -> tuple[int, dict]:
    """(ours, fallbacks by reason) of an operator of PyTorch's."""
    found = gsb.status().to_dict()["calls"].get("torch", {}).get(operator, {"ours": 0, "fallbacks": {}})
    return found["ours"], found["fallbacks"]


def seeded(run, words=0, seed=5):
    """(what ``run`` gives, the default generator's state behind it), a number of words into a sequence."""
    torch.manual_seed(seed)
    if words:
        torch.rand(words)
    return run(), torch.get_rng_state()


def bits(x):
    """A tensor as integers, all NaN alike."""
    if isinstance(x, (tuple, list)):
        return [bits(each) for each in x]
    if not x.is_floating_point():
        return x.dtype, x.stride(), x.tolist()
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[x.element_size()]
    x = torch.where(x.isnan(), torch.full_like(x, torch.nan), x).detach()
    return x.dtype, x.stride(), x.view(kind).tolist()


def same(run, words=0, operator=None):
    """That ``run`` gives the same bits and leaves the same state with a framework as without, where it is ours if an
    operator is named.
    """
    expected, after = seeded(run, words)
    before = counted(operator) if operator else None
    with gsb.enabled("some"):
        found, left = seeded(run, words)
    assert bits(found) == bits(expected)
    assert torch.equal(left, after)
    if operator:
        assert counted(operator)[0] > before[0] and counted(operator)[1] == {}


def numbers(dtype, *shape):
    """Normal numbers, with infinities, NaN and zeros of both signs among them."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    flat = x.view(-1)
    for at, value in enumerate((torch.inf, -torch.inf, torch.nan, 0.0, -0.0)):
        flat[at :: max(1, flat.numel() // 7)][:3] = value
    return x.to(dtype)


def step(x, p=0.5, function=F.dropout, **keywords):
    """Output and gradient of a dropout, for a cotangent that is no constant."""
    x = x.detach().clone().requires_grad_()
    y = function(x * 1, p, training=True, **keywords)
    y.backward(torch.linspace(-2, 3, y.numel(), dtype=torch.float32).view(y.shape).to(y.dtype))
    return y.detach(), x.grad
