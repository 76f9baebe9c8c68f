"""Thousands of random calls of the public functions, most of them wrong: each is right, or refused in our own words.

A call that is not refused has to give what plain PyTorch gives (`oracles`), with its gradients. A refusal is an
exception that one of our ``raise`` statements made, of a type that Python's users expect, whose text quotes what was
wrong. Whatever else happens (a crash, an allocator's words, an AttributeError, a wrong number) is a fault.
"""

from __future__ import annotations

import linecache
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from tests.public_face import oracles
from tests.public_face.calls import FUNCTIONS, Call, right_call
from tests.public_face.spoiled import HUGE, random_call

HOME = str(Path(gsb.__file__).parent)
REFUSALS = (TypeError, ValueError, IndexError, MemoryError)
SHORT, LONG = 6, 600  # calls of each function
STANDS_FOR_HUGE = 11  # an extent that no other one is


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame is a ``raise`` of the package."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    return file.startswith(HOME) and linecache.getline(file, trace.tb_lineno).lstrip().startswith("raise")


def quotes_of(name: str, value: Any) -> set[str]:
    """What a text that quotes this argument may have of it."""
    found = {type(value).__name__, repr(value)[:60], str(value)[:60]}
    if isinstance(value, Tensor):
        found |= {str(value.dtype), str(tuple(value.shape)), str(value.layout), str(value.device)}
        found |= {str(n) for n in (*value.shape, value.dim(), value.numel(), *(s + 1 for s in value.shape))}
        if value.layout is torch.strided and not (value.is_meta or value.is_quantized) and value.numel() < 1000:
            found |= {str(n) for n in value.flatten().tolist()}
    elif isinstance(value, np.ndarray):
        found |= {str(value.dtype), str(value.shape), *map(str, value.flatten().tolist()[:50])}
    elif isinstance(value, (list, tuple)):
        for part in value:
            found |= quotes_of(name, part)
    elif isinstance(value, dict):
        found |= {repr(part) for part in (*value, *value.values())}
    elif isinstance(value, (gsb.Graph, gsb.RelGraph)):
        found |= {str(n) for n in (*value.shape, value.num_edges)} | {str(value.device)}
    elif isinstance(value, gsb.KernelMap):
        found |= {str(n) for n in (*value.shape, value.num_offsets)} | {str(value.device)}
    elif isinstance(value, gsb.Segments):
        found |= {str(value.num_rows), str(value.num_segments), str(value.offsets.device)}
    elif isinstance(value, int):
        found.add(str(value + 1))
    return found | {name}


def tensors_in(value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in tensors_in(part)]
    return []


def in_double(value):
    """An argument for the oracle: floating tensors in float64, as new leaves."""
    if isinstance(value, Tensor) and value.is_floating_point():
        plain = value.detach().as_subclass(Tensor).resolve_neg()
        return plain.double().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(in_double(part) for part in value)
    return value


def stand_in(value):
    """Zeros on the CPU for tensors without numbers, which are few enough."""
    if isinstance(value, Tensor) and (value.is_meta or HUGE in value.shape):
        return torch.zeros([STANDS_FOR_HUGE if n == HUGE else n for n in value.shape], dtype=value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(stand_in(part) for part in value)
    return value


def assert_right(call: Call, found: Any) -> None:
    """What a call gave, and its gradients, are those of its oracle."""
    if call.oracle is None:
        assert str(found)
        return
    if not isinstance(found, Tensor):
        expected, parts = call.oracle(**call.arguments), oracles.parts(found)
        assert len(parts) == len(expected)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(parts, expected))
        return
    operands = [x for value in call.arguments.values() for x in tensors_in(value) if x.is_floating_point()]
    assert found.dtype == operands[0].dtype and found.is_contiguous()
    if found.is_meta or any(HUGE in x.shape for x in operands):
        expected = call.oracle(**{name: stand_in(value) for name, value in call.arguments.items()})
        assert found.shape == tuple(HUGE if n == STANDS_FOR_HUGE else n for n in expected.shape)
        assert not found.numel() or all(x.is_meta for x in operands)
        return
    given = {name: in_double(value) for name, value in call.arguments.items()}
    expected = call.oracle(**given)
    tolerance = 1e-4 if found.dtype == torch.float32 else 1e-9 if found.dtype == torch.float64 else 3e-2
    close = dict(rtol=tolerance, atol=tolerance, equal_nan=True)
    result, expected_result = found.detach().as_subclass(Tensor).double(), expected.detach()
    if call.name == "rgms":  # infinities of either sign meet or not, as the product is associated
        result, expected_result = (torch.where(x.isfinite(), x, torch.nan) for x in (result, expected_result))
    torch.testing.assert_close(result, expected_result, **close)
    leaves = [x for x in operands if x.requires_grad]
    doubles = [x for value in given.values() for x in tensors_in(value) if x.requires_grad]
    assert found.requires_grad == bool(leaves)
    if not leaves or not all(bool(x.isfinite().all()) for x in (*operands, found)):
        return
    cotangent = torch.linspace(-1, 1, max(found.numel(), 1))[: found.numel()].view(found.shape)
    actual = torch.autograd.grad(found, leaves, cotangent.to(found.dtype))
    if repeats(operands):  # equal messages: who gets the gradient of a maximum is a rule, not a number
        assert [x.shape for x in actual] == [x.shape for x in leaves]
        return
    wanted = torch.autograd.grad(expected, doubles, cotangent.double())
    # what is multiplied by a large scale cancels by rounding alone
    close["atol"] *= max(1.0, *(abs(value) for value in call.arguments.values() if type(value) in (int, float)), 1.0)
    for a, b in zip(actual, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, **close)


def repeats(operands: list[Tensor]) -> bool:
    """Whether some operand has a number twice."""
    return any(x.detach().unique().numel() < x.numel() for x in operands)


def judge(call: Call, changed: dict[str, Any], fine: bool) -> str:
    """Run a call; "right" or "refused". AssertionError that shows the call for anything else."""
    try:
        found = call.function(**call.arguments)
    except Exception as error:
        text = f"{call}\n{type(error).__name__}: {error}"
        assert not fine, f"refused, though it is right: {text}"
        assert isinstance(error, REFUSALS) and raised_by_us(error), f"not refused in our own words: {text}"
        quotes = {word for name, value in changed.items() for word in quotes_of(name, value)}
        assert any(word and word in str(error) for word in quotes), f"quotes nothing of {list(changed)}: {text}"
        return "refused"
    try:
        assert_right(call, found)
    except Exception as error:
        raise AssertionError(f"wrong, or not refused: {call}\n{type(error).__name__}: {error}") from error
    return "right"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_calls_are_right(name):
    """The calls that are spoilt below, unspoilt."""
    rng = random.Random(f"right {name}")
    for _ in range(2):
        assert judge(right_call(rng, name), {}, True) == "right"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_calls_are_refused_in_words(name):
    rng = random.Random(f"short {name}")
    seen = {judge(*random_call(rng, name)) for _ in range(SHORT)}
    assert "refused" in seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_bad_calls_are_refused_in_words(name):
    rng = random.Random(f"long {name}")
    for _ in range(LONG):
        judge(*random_call(rng, name, (torch.float32, torch.float64, torch.bfloat16)))
