"""Worker process of the cache tests, ``python -m tests.compiler.cache.worker COMMAND JSON``: prints a line of JSON."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path

from gnn_sparse_backend.compiler.cache import DiskCache, KernelKey, KernelStore
from tests.compiler.cache.helpers import PLAN, PROGRAM, TARGET, CopyBuild, assert_scales, get, load


def get_kernel(root: str, library: str, log: str | None = None, start: str | None = None, seconds: float = 0.0) -> dict:
    """Get the kernel and check its result; the build logs one line and takes ``seconds``."""
    copy = CopyBuild(library)

    def build(folder):
        if log is not None:
            with open(log, "a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(seconds)
        return copy(folder)

    store = KernelStore(DiskCache(root), load)
    if start is not None:
        Path(f"{start}.{os.getpid()}").touch()
        while not os.path.exists(start):
            time.sleep(0.005)
    kernel = get(store, build)
    assert_scales(kernel)
    return {"origin": kernel.origin, **asdict(store.stats())}


def die_while_writing(root: str, library: str, scratch: str) -> dict:
    """Get killed when everything is written and the rename is about to happen."""
    tempfile.tempdir = scratch
    os.rename = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    get(KernelStore(DiskCache(root), load), CopyBuild(library))
    return {}


def hold_lock(root: str, ready: str, toolchain: dict) -> dict:
    """Hold the lock of the key until killed. ``toolchain``: the caller's, so that it is the same key by
    construction.
    """
    with DiskCache(root).lock(KernelKey(PROGRAM, PLAN, TARGET, toolchain=toolchain)):
        Path(ready).touch()
        time.sleep(600)
    return {}


def use_read_only_root(root: str, library: str, user: int, occupied: bool) -> dict:
    """As ``user``: make ``root``, with the first kernel if ``occupied``, take write permission away, get two
    kernels.
    """
    importlib.import_module("filelock")  # while this user may: root's interpreter is its own, maybe
    if os.geteuid() == 0:  # root may write anywhere
        os.setegid(user)
        os.seteuid(user)
    os.mkdir(root, 0o700)
    programs = ["program: first", "program: second"]
    if occupied:
        get(KernelStore(DiskCache(root), load), CopyBuild(library), programs[0])
    os.chmod(root, 0o500)
    store = KernelStore(DiskCache(root), load)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernels = [get(store, CopyBuild(library), program) for program in programs]
    for kernel in kernels:
        assert_scales(kernel)
    return {
        "origins": [kernel.origin for kernel in kernels],
        "warnings": [str(item.message) for item in caught],
        **asdict(store.stats()),
    }


def compile_for_real(factor: float) -> dict:
    """Through the package's own store: compile with TVM, or load."""

    from gnn_sparse_backend.compiler import cache as kernels
    from gnn_sparse_backend.compiler.codegen import build_shared, host_target
    from tests.compiler.cache.conftest import scale_function

    target = host_target()
    kernel = kernels.get_kernel(
        f"b = a * {factor}",
        "serial",
        target,
        lambda folder: build_shared(scale_function(factor), target, folder),
        name="scale",
    )
    assert_scales(kernel, factor)
    return {"origin": kernel.origin, "name": kernel.name, "program": kernel.script(), **asdict(kernels.stats())}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
