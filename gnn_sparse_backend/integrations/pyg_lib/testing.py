"""``pyg_lib.testing``: what tests of the library ask for."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch


def withSeed(func: Callable[..., Any]) -> Callable[..., None]:
    """Run a test with the numbers of one seed."""

    @functools.wraps(func)
    def seeded(*args: Any, **kwargs: Any) -> None:
        torch.manual_seed(12345)
        func(*args, **kwargs)

    return seeded


def withCUDA(func: Callable[..., Any]) -> Any:
    """Run a test with each ``device``: the CPU, and a GPU where there is one."""
    import pytest

    names = ["cpu", *(["cuda:0"] if torch.cuda.is_available() else [])]
    return pytest.mark.parametrize("device", [pytest.param(torch.device(name), id=name) for name in names])(func)


def onlyCUDA(func: Callable[..., Any]) -> Any:
    """Skip a test where there is no GPU."""
    import pytest

    return pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA not available")(func)


def onlyTriton(func: Callable[..., Any]) -> Any:
    """Skip a test where Triton is not installed."""
    import pytest

    return pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="'triton' not installed")(func)
