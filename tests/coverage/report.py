"""Every layer of a framework with and without the backend: equal results, and how much of it ran on our kernels.

A zoo (``dgl/layers.py``, ``pyg/layers.py``) is a list of cases. A case builds a module that holds its inputs as
parameters, so that gradients of inputs and of weights have names and are compared alike:

    Case("GraphConv", lambda: Bound(GraphConv(6, 4), x=features(8, 6)), lambda m: m.layer(graph, m.x))

A zoo also has ``EXCEPTIONS``: {name of a case, or "*": {"operator: reason": why it cannot be a kernel of ours}}, and
``PAGES``: {name of a page of docs/layers/: its cases}; `tests.coverage.tables` makes them.

A case is one training step: forward, a random cotangent for every output, backward. It runs twice from the same seed.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status

ZOOS = {"dgl": "tests.coverage.dgl.layers", "pyg": "tests.coverage.pyg.layers"}

# The least share of calls on our kernels that every case must reach, the explained exceptions of its zoo left out.
# None: nothing is required.
REQUIRED_SHARE: dict[str, float | None] = {"dgl": 0.95, "pyg": 0.95}

# Two orders of the same sums, relative to the largest value of the array.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}
# An array that is zero but for rounding (the gradient of a bias before a normalisation) has no scale of its own: its
# largest value counts as at least this. The inputs and cotangents of a case are of order one.
SMALLEST_SCALE = 1e-2

Counters = dict[str, tuple[int, dict[str, int]]]  # operator -> (calls on our kernels, {reason: calls fallen back})


@dataclass(frozen=True)
class Case:
    """One layer with one choice of arguments.

    ``build()`` makes the module, inputs included (see `Bound`); it may draw from the global generators, which are
    seeded. ``call(module)`` returns the outputs. Everything floating is cast to the type under test after ``build``.
    """

    name: str
    build: Callable[[], nn.Module]
    call: Callable[[nn.Module], Tensor | tuple[Tensor, ...]]
    note: str = ""
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Outcome:
    """What one training step left behind."""

    outputs: tuple[Tensor, ...]
    gradients: dict[str, Tensor | None]  # by name of the parameter or input; None: the output does not depend on it
    buffers: dict[str, Tensor]  # running statistics and other state of the module after the step
    counters: Counters = field(default_factory=dict)

    @property
    def ours(self) -> int:
        """Calls that ran on our kernels."""
        return sum(ran for ran, _ in self.counters.values())

    @property
    def fallbacks(self) -> dict[str, int]:
        """{"operator: reason": calls} of what the framework ran itself."""
        return {
            f"{operator}: {reason}": calls
            for operator, (_, reasons) in sorted(self.counters.items())
            for reason, calls in sorted(reasons.items())
        }


class Bound(nn.Module):
    """A layer (or None, for a function) and its inputs: floating tensors become parameters, others buffers."""

    def __init__(self, layer: nn.Module | None = None, /, **inputs: Tensor) -> None:
        super().__init__()
        self.layer = layer
        for name, value in inputs.items():
            if value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value.detach().clone()))
            else:
                self.register_buffer(name, value, persistent=False)


def features(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64, the same ones for the same shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run_case(framework: str, case: Case, seed: int, dtype: torch.dtype | None = None, backward: bool = True) -> Outcome:
    """One training step of ``case`` with the backend as it is now, on or off; counts of ``framework`` alone.

    Args:
        dtype: Of all floating parameters, inputs and buffers; by default the first of ``case.dtypes``.
        backward: False stops after the forward pass; the gradients are then None.

    The seed fixes ``torch``, ``numpy``, ``random`` and DGL's own generator, at ``build`` and again at ``call``.
    """
    _seed(framework, seed)
    module = case.build().to(dtype or case.dtypes[0])
    _seed(framework, seed + 1)
    reset_status()
    outputs = case.call(module)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    # Copies: a reversible layer frees its outputs' memory in the backward pass.
    kept = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in outputs)
    roots = [(each, cotangent) for each, cotangent in zip(outputs, cotangents(outputs, seed)) if cotangent is not None]
    if roots and backward:
        torch.autograd.backward(*zip(*roots))
    calls = gsb.status().to_dict()["calls"].get(framework, {})
    return Outcome(
        outputs=kept,
        gradients={name: each.grad for name, each in module.named_parameters()},
        buffers={name: each.detach().clone() for name, each in module.named_buffers()},
        counters={operator: (row["ours"], row["fallbacks"]) for operator, row in calls.items()},
    )


def cotangents(outputs: Sequence[Tensor], seed: int) -> list[Tensor | None]:
    """Standard normal numbers for every output that has a gradient, None for the others.

    Zero where an output is infinite or NaN: DGL's maximum of no messages is an infinity, whose cotangent its gradient
    hands to whatever node or edge has number 0.
    """
    generator = torch.Generator().manual_seed(seed + 2)
    return [
        torch.randn(each.shape, generator=generator, dtype=torch.float64)
        .to(each.dtype)
        .masked_fill(~each.detach().isfinite(), 0.0)
        if each.requires_grad
        else None
        for each in outputs
    ]


def run_pair(framework: str, case: Case, seed: int = 0, dtype: torch.dtype | None = None) -> tuple[Outcome, Outcome]:
    """`run_case` with the backend on, and with it off, in the order of `compare`. Off runs first."""
    gsb.disable()
    without = run_case(framework, case, seed, dtype)
    with gsb.enabled(framework):
        with_backend = run_case(framework, case, seed, dtype)
    return with_backend, without


def compare(with_backend: Outcome, without: Outcome) -> list[str]:
    """Every difference beyond the order of sums, in words; empty if the two agree."""
    found = []
    if len(with_backend.outputs) != len(without.outputs):
        return [f"{len(with_backend.outputs)} outputs instead of {len(without.outputs)}"]
    for position, pair in enumerate(zip(with_backend.outputs, without.outputs)):
        found += _differences(f"output {position}", *pair)
    for kind, one, other in (
        ("gradient of", with_backend.gradients, without.gradients),
        ("buffer", with_backend.buffers, without.buffers),
    ):
        if one.keys() != other.keys():
            found.append(f"{kind} other names: {sorted(one.keys() ^ other.keys())}")
        for name in one.keys() & other.keys():
            found += _differences(f"{kind} {name}", one[name], other[name])
    return found


def shortfall(framework: str, case: Case, outcome: Outcome) -> str | None:
    """Why the share of calls on our kernels is below what is required of ``framework``, or None."""
    required = REQUIRED_SHARE[framework]
    if required is None:
        return None
    explained = exceptions(framework, case)
    missing = {reason: calls for reason, calls in outcome.fallbacks.items() if reason not in explained}
    total = outcome.ours + sum(missing.values())
    if outcome.ours >= required * total:
        return None
    return f"{outcome.ours} of {total} calls on our kernels, at least {required:.0%} required; the others: {missing}"


def exceptions(framework: str, case: Case) -> dict[str, str]:
    """{"operator: reason": why it cannot be ours} for ``case``."""
    table = importlib.import_module(ZOOS[framework]).EXCEPTIONS
    return {**table.get("*", {}), **table.get(case.name, {})}


def _differences(name: str, one: Tensor | None, other: Tensor | None) -> list[str]:
    """Where the tensor ``one``, with the backend, is not ``other``."""
    if one is None or other is None:
        return [] if one is other else [f"{name}: {'missing' if one is None else 'not there without the backend'}"]
    for what, a, b in [
        ("type", type(one).__name__, type(other).__name__),
        *(
            (what, getattr(one, what), getattr(other, what))
            for what in ("dtype", "shape", "device", "layout", "requires_grad")
        ),
    ]:
        if a != b:
            return [f"{name}: {what} {a} instead of {b}"]
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    elif other.is_contiguous() and not one.is_contiguous():
        return [f"{name}: strides {one.stride()} instead of {other.stride()}"]
    if not one.is_floating_point():
        return [] if torch.equal(one, other) else [f"{name}: other values"]
    tolerance = TOLERANCE[one.dtype]
    one, other = one.detach().double(), other.detach().double()
    finite = other.isfinite()
    marks = lambda values: values.nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0)
    if not (torch.equal(finite, one.isfinite()) and torch.equal(marks(one[~finite]), marks(other[~finite]))):
        return [f"{name}: infinities or NaN in other places"]
    if not finite.any():
        return []
    one, other = one[finite], other[finite]
    error = (one - other).abs().max().item() / max(other.abs().max().item(), SMALLEST_SCALE)
    return [] if error <= tolerance else [f"{name}: differs by {error:.1e} of its scale, {tolerance:.0e} allowed"]


def _seed(framework: str, seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if framework == "dgl":
        import dgl

        dgl.seed(seed)


# --- the tables ---------------------------------------------------------------------------------------------------
