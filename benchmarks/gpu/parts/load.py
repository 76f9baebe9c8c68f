"""A kernel of each family is loaded, or compiled, launched, and right."""

from __future__ import annotations

import torch

from benchmarks.gpu.families import FAMILIES, Family, exact, mismatch
from benchmarks.gpu.told import PREPARE, Told

TYPES = torch.float32, torch.float16


def run(told: Told) -> None:
    device = torch.device("cuda" if told.on_gpu else "cpu")
    if told.on_gpu:
        told.attempt("this machine", _machine)
    for family in FAMILIES.values():
        for dtype in TYPES[:1] if told.small else TYPES:
            words = f"{family.name}, {str(dtype).removeprefix('torch.')}"
            told.attempt(words, lambda family=family, dtype=dtype: _step(told, family, dtype, device))


def _step(told: Told, family: Family, dtype: torch.dtype, device: torch.device) -> dict:
    from gnn_sparse_backend.compiler.cache.default import stats

    before = stats()
    torch.manual_seed(0)
    call, _ = family.step(device, dtype)
    found = call()
    told.wait()
    now = stats()
    origins = {"from_disk": now.disk_loads - before.disk_loads, "compiled": now.compiles - before.compiles}
    return origins | ({} if told.mode == PREPARE else mismatch(found, exact(family, dtype), dtype))


def _machine() -> dict:
    """What the numbers are of."""
    import platform

    from gnn_sparse_backend.compiler.codegen import cuda_target
    from gnn_sparse_backend.compiler.codegen.cuda.driver import driver_version
    from gnn_sparse_backend.compiler.codegen.cuda.library import cuda_key
    from gnn_sparse_backend.compiler.packs.toolchain import toolchain
    from gnn_sparse_backend.runtime.devices import arch_of

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "cache": getattr(properties, "L2_cache_size", None),
        "memory": properties.total_memory,
        "driver": ".".join(map(str, driver_version())),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "key": cuda_key(cuda_target(arch_of(torch.device("cuda")))),
        "toolchain": dict(toolchain()),
    }
