"""Places where the first GPU will probably fail: for each a check that names it, and the variables that go around it.

python -m benchmarks.gpu.places                 the places
python -m benchmarks.gpu.places streams         one check in this process; 0 if it holds
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.gpu.families import FAMILIES, exact, mismatch

FLOAT, HALF = torch.float32, torch.float16


class Fails(AssertionError):
    """A check does not hold; the message says why."""


@dataclass(frozen=True)
class Place:
    """what: may fail, and how it shows. check: raises on a device where it does. around: variables that go around
    it.
    """

    what: str
    check: Callable[[torch.device], None]
    around: Mapping[str, str] = field(default_factory=dict)


def _right(name: str, device: torch.device, dtype: torch.dtype = FLOAT) -> None:
    torch.manual_seed(0)
    call, _ = FAMILIES[name].step(device, dtype)
    if found := mismatch(call(), exact(FAMILIES[name], dtype), dtype):
        raise Fails(f"{name} in {dtype}: {found['why']}")


def alignment(device: torch.device) -> None:
    """Operands whose first element lies one element behind an address of their allocation."""
    for name, family in FAMILIES.items():
        for dtype in (FLOAT, HALF):
            torch.manual_seed(0)
            function, operands = family.make(device, dtype, 1)
            moved = [torch.empty(x.numel() + 1, device=device, dtype=dtype)[1:].view(x.shape) for x in operands]
            for to, x in zip(moved, operands):
                to.copy_(x.detach())
            found, expected = function(*moved), function(*operands)
            _synchronise(device)
            if not torch.equal(found, expected):
                raise Fails(f"{name} in {dtype} differs on operands that are not aligned")


def streams(device: torch.device) -> None:
    """A kernel on a stream of its own, behind work that takes longer than the launch."""
    if device.type != "cuda":
        return
    function, (x, w) = FAMILIES["spmm"].make(device, FLOAT, 1)
    x, w = x.detach().zero_(), w.detach().fill_(1.0)
    function(x, w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(1.0)
        found = function(x, w)
    stream.synchronize()
    if not float(found.sum()) == w.numel() * x.shape[1]:
        raise Fails("a kernel did not wait for the work before it on PyTorch's current stream")


def exchange(device: torch.device) -> None:
    """PyTorch's tensors reach kernels by DLPack's exchange of pointers, in every type, without a copy."""
    import tvm_ffi

    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        given = torch.arange(6, device=device).to(dtype)
        taken = tvm_ffi.from_dlpack(given)
        back = torch.from_dlpack(taken)
        if back.data_ptr() != given.data_ptr() or not torch.equal(back, given):
            raise Fails(f"tensors of {dtype} are not taken where they are")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        raise Fails(f"PyTorch {torch.__version__} has no exchange of DLPack in C, and TVM's FFI no stand-in for it")
    _right("spmm", device)
    _right("spmm", device, torch.bfloat16)


def cached_code(device: torch.device) -> None:
    """Machine code from the cache is found under this machine's keys, and the driver takes it."""
    from gnn_sparse_backend.compiler.cache.default import stats

    _right("spmm", device)
    _synchronise(device)
    found = stats()
    if device.type == "cuda" and found.compiles:
        asked = found.compiles + found.disk_loads
        raise Fails(
            f"{found.compiles} of {asked} kernels were compiled here: the cache lacks them, or "
            "has them under other keys (`load` shows this machine's, kit.json those of the kit)"
        )


def shared_memory(device: torch.device) -> None:
    """Kernels with shared memory, of which none may declare more than 48 KiB, launch."""
    for name in (name for name, family in FAMILIES.items() if family.shared):
        for dtype in (FLOAT, HALF):
            _right(name, device, dtype)
    for program, text in sources():
        if (most := shared_bytes(text)) > 48 << 10:
            raise Fails(f"{program} declares {most} bytes of shared memory; more than 48 KiB want a driver's attribute")


def instructions(device: torch.device) -> None:
    """Tensor Cores by ``mma.sync`` work, and no source in the cache has instructions of sm_90a alone."""
    for name in (name for name, family in FAMILIES.items() if family.shared):
        _right(name, device, HALF)
    for program, text in sources():
        if found := special_instructions(text):
            raise Fails(f"{program} has {', '.join(found)}, which an architecture of the name sm_90a has alone")


def frameworks(device: torch.device) -> None:
    """Every module of the package imports beside this PyTorch, and a layer of PyG trains."""
    import importlib
    import pkgutil

    import gnn_sparse_backend as gsb

    for module in pkgutil.walk_packages(gsb.__path__, "gnn_sparse_backend."):
        words = module.name.split(".")
        if not {"dgl", "spconv", "distributed", "__main__"} & set(words):
            importlib.import_module(module.name)
    from benchmarks.gpu.training import losses

    plain, ours = losses(device, steps=2), losses(device, steps=2, enabled=True)
    if not all(abs(a - b) <= 1e-3 * abs(a) for a, b in zip(plain, ours, strict=True)):
        raise Fails(f"losses of two steps are {ours} with the backend and {plain} without")


PLACES = {
    "alignment": Place(
        "vectors of 16 bytes are loaded at an address that is not a multiple of 16: misaligned address",
        alignment,
        {"GSB_CUDA_ALIGNMENT": "256"},
    ),
    "streams": Place(
        "TVM's FFI launches on another stream than PyTorch's current one: wrong numbers now and then",
        streams,
        {"TVM_FFI_SKIP_DLPACK_C_EXCHANGE_API": "1"},
    ),
    "exchange": Place(
        "PyTorch's DLPack is of another version than TVM's: TypeError, copies, or a compiler that is started",
        exchange,
        {"TVM_FFI_SKIP_DLPACK_C_EXCHANGE_API": "1"},
    ),
    "cached code": Place(
        "the driver refuses machine code from a cache made elsewhere, or its key is another: no kernel image, or "
        "minutes of compiling",
        cached_code,
        {"GSB_CACHE_DIR": "", "GSB_CUDA_MADE_BY": ""},
    ),
    "shared memory": Place(
        "a kernel wants more than 48 KiB of shared memory: invalid argument at the launch", shared_memory
    ),
    "instructions": Place(
        "instructions that want sm_90a (wgmma, clusters, bulk copies), or fragments that are laid out otherwise: no "
        "kernel image, or wrong products",
        instructions,
        {"GSB_CUDA_ARCH": "sm_90a"},
    ),
    "frameworks": Place(
        "PyTorch is of another version than the one that all was tested with: a private name is gone",
        frameworks,
        {"GSB_DEFERRED": "0", "GSB_FEW_EDGES": "0"},
    ),
}


def sources() -> list[tuple[str, str]]:
    """(program, CUDA source) of every kernel in the cache."""
    from gnn_sparse_backend.compiler.cache import DiskCache

    cache = DiskCache()
    found = [(entry.name, cache.root / entry.key / "cuda.cu") for entry in cache.entries()]
    return [(name, path.read_text()) for name, path in found if path.exists()]


def shared_bytes(source: str) -> int:
    """Bytes of shared memory that CUDA source declares, in all of its kernels."""
    sizes = {"float": 4, "int": 4, "half": 2, "nv_bfloat16": 2, "__nv_bfloat16": 2, "double": 8, "uint": 4}
    found = re.findall(r"__shared__\s+(?:alignas\(\d+\)\s*|__align__\(\d+\)\s*)?(\w+)\s+\w+\[(\d+)\]", source)
    return sum(sizes.get(kind, 8) * int(count) for kind, count in found)


def special_instructions(source: str) -> list[str]:
    """Return the instructions in CUDA source or PTX that only an architecture with an ``a`` at its end has."""
    return [word for word in ("wgmma", "cp.async.bulk", "setmaxnreg", "cluster.sync", "tcgen05") if word in source]


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(argv: Sequence[str]) -> int:
    if not argv:
        for name, place in PLACES.items():
            around = " ".join(f"{key}={value}" for key, value in place.around.items())
            print(f"{name}: {place.what}; around it: {around or 'nothing: a test holds that none does'}")
        return 0
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    PLACES[argv[0]].check(device)
    _synchronise(device)
    print("holds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
