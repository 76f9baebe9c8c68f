"""Run a program with the backend off and with it on, and say everything in which what it looked at differs.

A program takes nothing, builds all that it needs, and returns its looks: a tree of dicts, lists, tensors and plain
values. An error is a look as well. The framework's own run is the oracle, and there is no list of exceptions: only
where the framework raises may the backend give a result in the place of the error.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.planner.cpu.listed import FEW, USUAL

# Sums in another order: a few units in the last place of the largest of a few hundred terms, some times over where a
# gradient is differentiated again.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,  # the framework rounds each partial sum to 8 bits
}


class Seen(NamedTuple):
    """What a program sees of a tensor at the time that it looks."""

    type: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    contiguous: bool
    value: torch.Tensor


class Raised(NamedTuple):
    """What a program sees of an error."""

    type: str
    message: str


Program = Callable[[], Any]


def tried(function: Callable, *args, **kwargs):
    """What the function gives, or the error that it raises; a program goes on after either."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def seen(tree):
    """The tree as it is now: tensors copied, with what else a program sees of them; dicts as pairs in their order."""
    if isinstance(tree, torch.Tensor):
        plain = tree.detach()
        plain = plain.to_dense() if plain.layout is not torch.strided else plain.clone()
        contiguous = tree.layout is torch.strided and tree.is_contiguous()
        facts = tree.dtype, tuple(tree.shape), tree.requires_grad, tree.is_leaf, contiguous
        return Seen(type(tree).__name__, *facts, plain)
    if isinstance(tree, np.ndarray):
        return seen(torch.from_numpy(tree.copy()))
    if isinstance(tree, (Seen, Raised)):
        return tree
    if isinstance(tree, dict):
        return [(key, seen(item)) for key, item in tree.items()]
    if isinstance(tree, (tuple, list)):
        return [seen(item) for item in tree]
    if tree is None or isinstance(tree, (str, int, float, bool, type, torch.dtype, torch.Size)):
        return tree
    raise TypeError(f"a look is a tensor, a number, a word, or a container of them, not {type(tree).__name__}")


def run(program: Program):
    """The program's looks from fresh seeds, or its error; and the state of the random numbers afterwards."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        looks = tried(lambda: seen(program()))
    return looks, torch.get_rng_state()


FEW_EDGES = "few"
"""A way to enable: whatever the size of a graph, its edges are few."""


@contextmanager
def switched_on(*frameworks: str, deferred: bool | str = True) -> Iterator[None]:
    """The backend under the frameworks inside the block; deferred: whether messages may wait for their use, or
    ``FEW_EDGES``.
    """
    options = {} if deferred else {"deferred": False}
    before = FEW.features
    if deferred == FEW_EDGES:
        FEW.set(USUAL)
        FEW.tiny = 0
    try:
        for name in frameworks:
            gsb.enable(name, **options)
        yield
    finally:
        for name in reversed(frameworks):
            gsb.disable(name)
        FEW.set(before)


def differing(program: Program, *frameworks: str, deferred: bool | str = True, rough: bool = False) -> list[str]:
    """In what the program's looks differ with the backend on, one line each; none where the rule holds.

    rough: whether values of wider types may come from bfloat16.
    """
    expected, state = run(program)
    with switched_on(*frameworks, deferred=deferred):
        actual, state_with = run(program)
    least = TOLERANCE[torch.bfloat16] if rough else 0.0
    lines = list(differences(expected, actual, least))
    if type(expected) is not Raised and not torch.equal(state, state_with):
        lines.append("the state of the random numbers differs")
    return lines


def check(program: Program, *frameworks: str, deferred: bool | str = True, rough: bool = False) -> None:
    """Fail with the lines of ``differing``."""
    lines = differing(program, *frameworks, deferred=deferred, rough=rough)
    assert not lines, "\n".join(lines[:12])


def differences(expected, actual, least: float = 0.0, path: str = "looks") -> Iterator[str]:
    """Each place of the trees in which they differ, in words. least: the least tolerance, of any type."""
    if type(expected) is Raised:
        if type(actual) is Raised and actual.type != expected.type:
            yield f"{path}: {actual.type} in the place of {expected.type}: {actual.message[:200]}"
    elif type(actual) is Raised:
        yield f"{path}: raises {actual.type}: {actual.message[:300]}"
    elif type(expected) is not type(actual):
        yield f"{path}: {_short(actual)} in the place of {_short(expected)}"
    elif type(expected) is Seen:
        yield from _differences_of_tensors(expected, actual, least, path)
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            yield f"{path}: {len(actual)} in the place of {len(expected)}"
        for at, (one, other) in enumerate(zip(expected, actual)):
            pair = isinstance(one, tuple) and len(one) == 2 and type(one) is tuple
            if pair and isinstance(other, tuple) and one[0] == other[0]:
                yield from differences(one[1], other[1], least, f"{path}.{one[0]}")
            else:
                yield from differences(one, other, least, f"{path}.{at}")
    elif isinstance(expected, float) and isinstance(actual, float):
        if not np.isclose(actual, expected, rtol=1e-5, atol=1e-6, equal_nan=True):
            yield f"{path}: {actual} in the place of {expected}"
    elif expected != actual:
        yield f"{path}: {actual!r} in the place of {expected!r}"


def _differences_of_tensors(expected: Seen, actual: Seen, least: float, path: str) -> Iterator[str]:
    for name in ("type", "dtype", "shape", "requires_grad", "is_leaf"):
        if getattr(expected, name) != getattr(actual, name):
            yield f"{path}: {name} is {getattr(actual, name)} in the place of {getattr(expected, name)}"
    if expected.contiguous and not actual.contiguous:  # the other way, more programs run with us on
        yield f"{path}: not contiguous"
    if expected.dtype is not actual.dtype or expected.shape != actual.shape:
        return
    tolerance = max(TOLERANCE[expected.dtype], least) if expected.dtype in TOLERANCE else 0.0
    largest = expected.value[expected.value.isfinite()].abs().amax().item() if expected.value.isfinite().any() else 0.0
    bound = tolerance * max(largest, 1e-3)  # of a sum that cancels, the error is that of its terms
    if not torch.allclose(actual.value, expected.value, rtol=tolerance, atol=bound, equal_nan=True):
        yield f"{path}: {_numbers(actual.value)} in the place of {_numbers(expected.value)}"


def _numbers(value: torch.Tensor) -> str:
    numbers = [f"{x:.5g}" for x in value.flatten()[:6].tolist()]
    return f"[{', '.join(numbers)}{', ...' if value.numel() > 6 else ''}]"


def _short(look) -> str:
    return f"a tensor {look.shape}" if type(look) is Seen else repr(look)[:80]
