"""``pytest --device cuda``: the CPU's own tests of operators and layers, with their tensors on a GPU.

Tests are written for the CPU. With the option, what a test, a framework's layer or an initialiser makes without naming
a device is made as ever, with the same random numbers, and then moved; what the package itself makes is left alone, so
that a tensor that it forgets on the CPU is found. ``numpy()`` of a tensor over there gives a copy, as it must. A test
that is about the CPU says so by ``@pytest.mark.cpu_only("why")``, and one that moves its tensors itself by
``@pytest.mark.moves_by_itself``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

FOLDERS = {"ops", "formats", "integrations"}
MAKERS = frozenset(
    getattr(torch, name)
    for name in (
        "arange",
        "as_tensor",
        "empty",
        "empty_strided",
        "eye",
        "full",
        "linspace",
        "logspace",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "scalar_tensor",
        "sparse_coo_tensor",
        "sparse_csr_tensor",
        "sparse_csc_tensor",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    )
)
PACKAGE = "gnn_sparse_backend"


def missing() -> str | None:
    """Why tests cannot run on a GPU here, in words."""
    if not torch.cuda.is_available():
        return "no CUDA device on this machine"
    from gnn_sparse_backend.compiler.codegen.cuda.runtime import missing_for_cuda

    return "; ".join(missing_for_cuda()) or None


def _by_the_package() -> bool:
    """Whether the frame nearest to the call, PyTorch's own left aside, is the package's."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and name.partition(".")[0] != "torch":
            return name.partition(".")[0] == PACKAGE
        frame = frame.f_back
    return False


class TensorsOn(TorchFunctionMode):
    """What is made without a device named is moved to ``device``."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func not in MAKERS or kwargs.get("device") is not None or kwargs.get("out") is not None or _by_the_package():
            return func(*args, **kwargs)
        leaf = kwargs.pop("requires_grad", False)
        made = func(*args, **kwargs)
        moved = made if made.device.type == self._device.type else made.to(self._device)
        return moved.requires_grad_() if leaf else moved


@contextlib.contextmanager
def tensors_on(device: torch.device) -> Iterator[None]:
    """The mode, and what goes to and from NumPy."""
    from_numpy, numpy, array = torch.from_numpy, torch.Tensor.numpy, torch.Tensor.__array__

    def moved_from_numpy(given: np.ndarray) -> torch.Tensor:
        return from_numpy(given) if _by_the_package() else from_numpy(given).to(device)

    def to_numpy(tensor: torch.Tensor, *args, **kwargs) -> np.ndarray:
        return numpy(tensor if tensor.device.type == "cpu" or _by_the_package() else tensor.cpu(), *args, **kwargs)

    def to_array(tensor: torch.Tensor, *args, **kwargs) -> np.ndarray:
        return array(tensor if tensor.device.type == "cpu" or _by_the_package() else tensor.cpu(), *args, **kwargs)

    torch.from_numpy, torch.Tensor.numpy, torch.Tensor.__array__ = moved_from_numpy, to_numpy, to_array
    try:
        with TensorsOn(device):
            yield
    finally:
        torch.from_numpy, torch.Tensor.numpy, torch.Tensor.__array__ = from_numpy, numpy, array


def why_skipped(item: pytest.Item, lacking: str | None) -> str | None:
    """Why a test does not run with ``--device cuda``; None where it does."""
    if lacking is not None:
        return f"--device cuda: {lacking}"
    if (mark := item.get_closest_marker("cpu_only")) is not None:
        return f"--device cuda: {mark.args[0] if mark.args else 'of the CPU alone'}"
    if "serial_gpu" in getattr(item, "fixturenames", ()):
        return "--device cuda: the stand-in for a GPU takes tensors of the CPU"
    if "dgl" in item.path.parts:
        return "--device cuda: DGL's wheel has no CUDA"
    return None


def wants_moving(item: pytest.Item) -> bool:
    return bool(FOLDERS & set(item.path.parts)) and item.get_closest_marker("moves_by_itself") is None


@contextlib.contextmanager
def on_the_gpu(item: pytest.Item) -> Iterator[None]:
    """A test with its tensors on the GPU. What breaks the GPU ends the run: no test after it could tell anything."""
    with tensors_on(torch.device("cuda")) if wants_moving(item) else contextlib.nullcontext():
        yield
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        pytest.exit(f"{item.nodeid} broke the GPU: {str(error).splitlines()[0]}", returncode=3)
