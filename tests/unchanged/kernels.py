"""Which kernels are asked for: their stage III functions, targets and symbols."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.compiler.cache.store import KernelStore
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.ops.core import plans_cuda as cuda_plans
from gnn_sparse_backend.planner.cuda.gpu import Gpu
from gnn_sparse_backend.runtime import devices
from tests import default_plans

ARCH = "sm_90"


def cpu() -> str:
    """The CPU that code is generated for here."""
    return host_target().cpu


@contextlib.contextmanager
def collected() -> Iterator[dict[str, str]]:
    """Inside the block every kernel that a store is asked for is noted by name and digest, and for a GPU not built."""
    programs: dict[str, str] = {}
    get = KernelStore.get

    def note(store, program, plan, target, build, *, name="kernel", symbol="main", written=None):
        text = getattr(target, "key", target)
        function = written["stage3"]() if written and "stage3" in written else program
        parts = function, text, symbol
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
        kind = "cuda" if "cuda" in text else "cpu"
        programs[f"{kind} {name} {digest}"] = symbol
        if kind == "cuda":
            return Kernel(lambda *arguments: None, name, digest, "memory", 0.0, text, None, {})
        return get(store, program, plan, target, build, name=name, symbol=symbol, written=written)

    with mock.patch.object(KernelStore, "get", note):
        yield programs


def ask_for_default_plans() -> None:
    """Make every call of ``tests.default_plans`` as on a GPU, whose kernels are asked for and do nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "arch_of", lambda device: ARCH)
        patch.setattr(cuda_plans, "_gpu", lambda device, arch: Gpu("none", ARCH))
        # what no kernel writes may be read as positions
        patch.setattr(torch, "empty", torch.zeros)
        patch.setattr(torch, "empty_like", torch.zeros_like)
        patch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)
        for case in default_plans.cases():
            case(torch.device("cpu"))
