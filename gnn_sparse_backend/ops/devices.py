"""Where kernels run: on the device of their operands. Asked where a kernel is looked up for the first time, not at a call."""
from __future__ import annotations

import functools

import torch

from ..compiler.target.cuda_runtime import require_cuda


def arch_of(device: torch.device) -> str:
    """The compute architecture of a GPU, "sm_90"; "" for a CPU."""
    return "" if device.type == "cpu" else _cuda_arch(device)


def check_kernels(operator: str, device: torch.device) -> None:
    """There are kernels for a device that is not the CPU, and all that they need is there.

    Raises ValueError for any other device than a GPU of CUDA, BuildError that says what is missing.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        kind = "a GPU of ROCm" if device.type == "cuda" else str(device)
        raise ValueError(f"{operator}: there are no kernels for {kind}, only for the CPU and for CUDA; move the graph and "
                         "the operands with .to('cpu')")
    arch_of(device)


@functools.lru_cache(maxsize=None)
def _cuda_arch(device: torch.device) -> str:
    require_cuda()
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


__all__ = ["arch_of", "check_kernels"]
