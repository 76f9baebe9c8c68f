"""Where kernels run: on the device of their operands. Asked where a kernel is looked up for the first time, not at a
call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..compiler.codegen import BuildError
from ..config import CUDA_ARCH

T = TypeVar("T")


def on_cpu(device: torch.device) -> bool:
    """Whether what lies on a device is in the CPU's memory, which NumPy and SciPy read and nobody waits for."""
    return device.type == "cpu"


def arch_of(device: torch.device) -> str:
    """The compute architecture of a GPU, "sm_90"; "" for a CPU."""
    return "" if device.type == "cpu" else _cuda_arch(device)


def on_either(x: torch.Tensor, cpu: Callable[..., T], gpu: Callable[..., T], *arguments: Any) -> T:
    """Call ``cpu``, or where ``x`` is on a GPU ``gpu``, which is told its architecture last."""
    arch = arch_of(x.device)
    return gpu(*arguments, arch) if arch else cpu(*arguments)


def check_kernels(operator: str, device: torch.device) -> None:
    """There are kernels for a device, and all that they need is there.

    Raises ValueError for any other device than the CPU and a GPU of CUDA, BuildError that says what is missing.
    """
    if device.type == "cpu":
        return
    if device.type != "cuda" or torch.version.hip is not None:
        kind = "a GPU of ROCm" if device.type == "cuda" else str(device)
        raise ValueError(
            f"{operator}: there are no kernels for {kind}, only for the CPU and for CUDA; move the graph and "
            "the operands with .to('cpu')"
        )
    arch_of(device)


def why_not(device: torch.device) -> str | None:
    """Why there are no kernels for a device, in one of a few fixed texts; None where there are. Reads nothing of the
    device.
    """
    return None if device.type == "cpu" else _why_not(device)


@functools.cache
def _why_not(device: torch.device) -> str | None:
    try:
        check_kernels("kernels", device)
    except BuildError:
        return "CUDA kernels lack something here, see gsb doctor"
    except ValueError:
        return f"device {device.type}"
    return None


@functools.cache
def _cuda_arch(device: torch.device) -> str:
    from ..compiler.codegen.cuda.runtime import require_arch, require_cuda

    require_cuda(f"PyTorch {torch.__version__}, built for CUDA {torch.version.cuda}" if torch.version.cuda else "")
    major, minor = torch.cuda.get_device_capability(device)
    arch = CUDA_ARCH.get() or f"sm_{major}{minor}"
    require_arch(arch)
    return arch


def keep_current_device(entry: Callable) -> Callable:
    """The entry of a kernel that leaves PyTorch's current GPU as it is, which matters where there are several.

    The host's code that TVM generates makes the GPU of its tensors the current one (``__tvm_set_device``), and leaves
    it so.
    """
    if torch.cuda.device_count() < 2:
        return entry

    def launch(*arguments):
        # outputs come last
        device = next(x for x in reversed(arguments) if isinstance(x, torch.Tensor)).get_device()
        if device == torch.cuda.current_device():
            return entry(*arguments)
        with torch.cuda.device(device):
            return entry(*arguments)

    return launch
