"""What may spoil a right call of a public function: other values, types, shapes and devices of its arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from tests.public_face.calls import Call, right_call

HUGE = 2**42

# What may stand for any argument.
ANYTHING: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: 3,
    lambda: -1,
    lambda: 2.5,
    lambda: float("nan"),
    lambda: 2**70,
    lambda: True,
    lambda: "wrod",
    lambda: "",
    lambda: b"sum",
    lambda: [],
    lambda: (),
    lambda: {},
    lambda: [1, 2, 3],
    lambda: (2, "x"),
    lambda: {"a": 1},
    object,
    lambda: torch.float32,
    lambda: np.zeros((4, 3)),
    lambda: np.array(["a", "b"]),
    lambda: torch.zeros(()),
    lambda: torch.zeros(7, 3),
    lambda: torch.zeros(4, 5).to_sparse(),
    lambda: gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (2, 2)),
    lambda: gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (1, 1)).to("meta"),
    lambda: gsb.RelGraph.from_triples(*torch.zeros(3, 1).long(), (1, 1)),
    lambda: gsb.Segments.from_lengths(torch.tensor([2, 1])),
    lambda: gsb.Segments.from_lengths(torch.tensor([2, 1])).to("meta"),
    lambda: len,
)


class Tagged(torch.Tensor):
    """A subclass that changes nothing."""


def _quantised(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x.detach().float(), 0.1, 0, torch.quint8)


def _with(number: float) -> Callable[[Tensor], Tensor]:
    def put(x: Tensor) -> Tensor:
        x = x.detach().clone()
        x.view(-1)[:1] = number
        return x

    return put


# What may be done to a tensor of features: (whether a call stays right, how).
TO_FEATURES: tuple[tuple[bool, Callable[[Tensor], Any]], ...] = (
    (True, lambda x: x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()),
    (True, lambda x: torch.nn.Parameter(x.detach())),
    (True, lambda x: torch.stack([x, x], -1)[..., 0]),
    (True, lambda x: x.detach().transpose(0, -1).contiguous().transpose(0, -1) if x.dim() else x),
    (True, lambda x: x[:1].expand(x.shape) if x.dim() and x.shape[0] else x),
    (True, _with(float("nan"))),
    (True, _with(float("inf"))),
    (False, lambda x: x.as_subclass(Tagged)),
    (False, lambda x: x.long()),
    (False, lambda x: x.bool()),
    (False, lambda x: x.cfloat()),
    (False, lambda x: x.cdouble()),
    (False, lambda x: x.double()),
    (False, lambda x: x.half()),
    (False, lambda x: x.detach().to(torch.float8_e4m3fn)),
    (False, _quantised),
    (False, lambda x: x.to_sparse()),
    (False, lambda x: x.detach().to("meta")),
    (False, lambda x: x.detach().float().numpy()),
    (False, lambda x: x.tolist()),
    (False, lambda x: x[:-1] if x.dim() else x),
    (False, lambda x: torch.cat([x, x])[: x.shape[0] + 1] if x.dim() else x),
    (False, lambda x: x.unsqueeze(-1)),
    (False, lambda x: x.unsqueeze(0)),
    (False, lambda x: x[..., None, None]),
    (False, lambda x: x[0] if x.dim() and x.shape[0] else x),
    (False, lambda x: x.flatten()),
    (False, lambda x: x.sum()),
    (False, lambda x: x.transpose(0, -1) if x.dim() else x),
    (False, lambda x: x[..., :0] if x.dim() else x),
    (False, lambda x: x.detach().new_zeros(()).expand((*x.shape[:-1], HUGE))),
    (False, lambda x: x.detach().new_zeros(()).expand((*x.shape[:1], HUGE))),
    (False, lambda x: x.detach().new_zeros(()).expand((HUGE, *x.shape[1:]))),
    (False, lambda x: x.detach().new_zeros((0, HUGE))),
    (False, lambda x: x.detach().new_zeros((*x.shape, 0, HUGE)) if x.dim() < 3 else x),
    (False, lambda x: torch.empty((*x.shape[:1], HUGE), device="meta")),
)

# What may be done to a tensor of integers.
TO_INDICES: tuple[tuple[bool, Callable[[Tensor], Any]], ...] = (
    (True, lambda x: x.clone()),
    (True, lambda x: x.short()),
    (True, lambda x: x.to(torch.uint8)),
    (True, lambda x: torch.stack([x, x], -1)[..., 0]),
    (False, lambda x: x.numpy().astype(np.uint64)),
    (False, lambda x: x.float()),
    (False, lambda x: x.float() / 0),
    (False, lambda x: x.bool()),
    (False, lambda x: x.cfloat()),
    (False, lambda x: x.tolist()),
    (False, lambda x: x - 1),
    (False, lambda x: x + 1),
    (False, lambda x: -x - 1),
    (False, lambda x: x.long() + 2**62),
    (False, lambda x: x.long() * 2**61),
    (False, lambda x: x[:-1]),
    (False, lambda x: torch.cat([x, x])),
    (False, lambda x: x[:0]),
    (False, lambda x: x.unsqueeze(0)),
    (False, lambda x: x.flip(0)),
    (False, lambda x: x.sum()),
    (False, lambda x: x.to("meta")),
    (False, lambda x: x.to_sparse()),
    (False, lambda x: x.new_zeros(()).expand(HUGE)),
    (False, lambda x: torch.quantize_per_tensor(x.float(), 1.0, 0, torch.qint32)),
)

# What may be done to a tensor of truth values.
TO_TRUTH: tuple[tuple[bool, Callable[[Tensor], Any]], ...] = (
    (True, lambda x: x.clone()),
    (True, lambda x: torch.stack([x, x], -1)[..., 0]),
    (False, lambda x: x.short()),
    (False, lambda x: x.float()),
    (False, lambda x: ~x),
    (False, lambda x: x.tolist()),
    (False, lambda x: x.numpy()),
    (False, lambda x: x[:-1]),
    (False, lambda x: x.unsqueeze(0)),
    (False, lambda x: x[..., None, None]),
    (False, lambda x: x.flatten()),
    (False, lambda x: x.to("meta")),
    (False, lambda x: x.to_sparse()),
)

# What may be done to the shape of a structure.
TO_SIZES: tuple[Callable[[tuple], Any], ...] = (
    lambda shape: shape[::-1],
    lambda shape: shape[:1],
    lambda shape: (*shape, 3),
    lambda shape: (-1, shape[1]),
    lambda shape: (shape[0], -5),
    lambda shape: (HUGE, shape[1]),
    lambda shape: (shape[0], HUGE),
    lambda shape: (2**63, 2**63),
    lambda shape: (2**80, shape[1]),
    lambda shape: tuple(map(float, shape)),
    lambda shape: (None, shape[1]),
    lambda shape: ("4", "5"),
    lambda shape: np.array(shape),
    lambda shape: torch.Size(shape),
)


def change(rng: random.Random, value: Any) -> tuple[bool, Any]:
    """(whether a call stays right, what stands for ``value`` now)."""
    if rng.random() < 0.15:
        return False, rng.choice(ANYTHING)()
    if isinstance(value, Tensor):
        truth = TO_TRUTH if value.dtype == torch.bool else TO_INDICES
        fine, how = rng.choice(TO_FEATURES if value.is_floating_point() else truth)
        return fine, how(value)
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], int):
        at = rng.randrange(len(value))
        fine, new = change(rng, value[at])
        return fine, type(value)((*value[:at], new, *value[at + 1 :]))
    if isinstance(value, tuple) and len(value) == 2:
        return False, rng.choice(TO_SIZES)(value)
    return False, rng.choice(ANYTHING)()


def random_call(rng: random.Random, name: str, dtypes=(torch.float32,)) -> tuple[Call, dict[str, Any], bool]:
    """(a call, which of its arguments were changed, whether it must be right)."""
    call = right_call(rng, name, dtypes)
    changed, fine = {}, True
    for argument in rng.sample(sorted(call.arguments), min(len(call.arguments), rng.choice((0, 1, 1, 1, 1, 2)))):
        kept, value = change(rng, call.arguments[argument])
        call.arguments[argument] = changed[argument] = value
        fine &= kept
    return call, changed, fine
