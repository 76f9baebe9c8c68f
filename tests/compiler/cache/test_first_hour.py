"""Folders as a first hour has them: full, read-only, not to run code from, another's. A kernel comes all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.cache import DiskCache, KernelCacheWarning, KernelStore, default, folders
from gnn_sparse_backend.compiler.codegen import build_shared, host_target, linker, load, opened
from gnn_sparse_backend.compiler.codegen.errors import BuildError
from gnn_sparse_backend.compiler.packs.errors import NoKernelError
from tests.compiler.cache.conftest import scale_function
from tests.compiler.cache.helpers import ROOT, assert_scales, get

CAN_MOUNT = shutil.which("unshare") and not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
mounted = pytest.mark.skipif(not CAN_MOUNT, reason="this user cannot mount")

_KERNEL = """
import json, sys, warnings
warnings.simplefilter("always")
from gnn_sparse_backend.deferred import tvm
tvm.IRModule  # what compiles is imported as by a user, and not with all of TVM as by the next line alone
from tests.compiler.cache.conftest import scale_function
from tests.compiler.cache.helpers import assert_scales
from gnn_sparse_backend.compiler.cache import get_kernel, stats
from gnn_sparse_backend.compiler.codegen import build_shared, host_target
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    target = host_target()
    kernel = get_kernel("b = a * 2", "serial", target, lambda folder: build_shared(scale_function(2.0), target, folder))
    assert_scales(kernel)
print(json.dumps([kernel.origin, [str(each.message) for each in caught]]))
"""


@pytest.fixture
def compile_here():
    """A build of this process, and not a copy."""
    return lambda folder: build_shared(scale_function(2.0), host_target(), folder)


def under(mounts: str, **environment: str) -> tuple[str, list[str]]:
    """(origin of a kernel, warnings) in a process that sees these mounts."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'set -e; {mounts}\nexec "$0" -c "$1"', sys.executable, _KERNEL],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    origin, warned = json.loads(done.stdout)
    return origin, warned


@mounted
def test_a_full_folder_for_temporary_files(tmp_path):
    """In which LLVM ends the process when it writes an object."""
    full = tmp_path / "full"
    full.mkdir()
    mounts = f"mount -t tmpfs -o size=64k tmpfs {full}; head -c 60000 /dev/zero > {full}/zeros || true"
    for expected in ("compiled", "disk"):
        origin, warned = under(mounts, TMPDIR=str(full), GSB_CACHE_DIR=str(tmp_path / "cache"))
        assert (origin, warned) == (expected, [])


@mounted
def test_a_full_cache(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(0o700)
    mounts = f"mount -t tmpfs -o size=8k,mode=700 tmpfs {cache}"
    origin, warned = under(mounts, GSB_CACHE_DIR=str(cache))
    assert origin == "memory" and any("Set GSB_CACHE_DIR" in each for each in warned)


@mounted
@pytest.mark.parametrize("everywhere", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["all", "the cache"])
def test_folders_that_no_code_is_run_from(everywhere, tmp_path):
    cache, scratch = tmp_path / "cache", tmp_path / "tmp"
    cache.mkdir(0o700)
    scratch.mkdir()
    mounts = f"mount --bind {cache} {cache}; mount -o remount,bind,noexec {cache}"
    if everywhere:
        mounts += f"; mount -t tmpfs -o noexec tmpfs {scratch}; mount -t tmpfs -o noexec tmpfs /dev/shm"
    for expected in ("compiled", "disk"):
        origin, warned = under(mounts, GSB_CACHE_DIR=str(cache), TMPDIR=str(scratch))
        assert (origin, warned) == (expected, [])


@mounted
def test_a_read_only_cache(tmp_path):
    cache = tmp_path / "cache"
    assert under("true", GSB_CACHE_DIR=str(cache))[0] == "compiled"
    mounts = f"mount --bind {cache} {cache}; mount -o remount,bind,ro {cache}"
    assert under(mounts, GSB_CACHE_DIR=str(cache)) == ("disk", [])
    for entry in cache.glob("?" * 64):
        shutil.rmtree(entry)
    origin, warned = under(mounts, GSB_CACHE_DIR=str(cache))
    assert origin == "memory" and len(warned) == 1 and "cannot be written" in warned[0]


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_cache_that_is_open_to_others_is_not_used_and_said_to_be(mode, own_cache, monkeypatch, compile_here):
    own_cache.mkdir()
    own_cache.chmod(mode)
    store = default._Default()
    with pytest.warns(KernelCacheWarning, match=f"chmod 700 {own_cache}.*kernels stay in memory"):
        kernel = get(store(), compile_here)
    assert_scales(kernel)
    assert kernel.origin == "memory" and list(own_cache.iterdir()) == []


def test_a_cache_of_another_user_is_not_used(own_cache, monkeypatch, compile_here):
    own_cache.mkdir(0o700)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.warns(KernelCacheWarning, match="belongs to user .* GSB_CACHE_DIR to a folder of your own"):
        assert get(default._Default()(), compile_here).origin == "memory"


@pytest.fixture
def loads_no_library(monkeypatch):
    """The system loads libraries from nowhere, and LLVM's text all the same."""
    real = opened.tvm_ffi.load_module

    def refuse(path, **options):
        if not str(path).endswith(".ll"):
            raise RuntimeError(f"{path}: failed to map segment from shared object")
        return real(path, **options)

    def refuse_bytes(name, library):
        raise BuildError(name, "its library cannot be loaded: failed to map segment")

    monkeypatch.setattr(opened.tvm_ffi, "load_module", refuse)
    monkeypatch.setattr(opened, "open_packed", refuse_bytes)
    monkeypatch.setattr(linker._Libraries, "left", True)


def test_a_library_that_is_loaded_from_nowhere_is_run_as_text(root, loads_no_library, compile_here):
    store = KernelStore(DiskCache(root), load, leave_text=linker.leave_text)
    with pytest.warns(KernelCacheWarning, match="failed to map segment"):
        assert_scales(get(store, compile_here))
    assert [path.suffix for path in root.glob("*/main.*")] == [".ll"]
    assert_scales(get(store, compile_here, "another program"))
    assert store.stats().compiles == 3, "text from then on"
    assert get(KernelStore(DiskCache(root), load), compile_here).origin == "disk"


def test_without_room_anywhere_an_error_says_what_to_do(root, monkeypatch, new_store, build, tmp_path):
    monkeypatch.setattr(folders, "IN_MEMORY", str(tmp_path / "none"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(NoKernelError, match=r"has 1,000 bytes left; .*none.*set TMPDIR to a folder .* 16 MB of room"):
        get(new_store(), build)
    assert build.calls == 0


def test_room_in_memory_is_used_where_there_is_none_for_temporary_files(root, monkeypatch, new_store, build, tmp_path):
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(folders, "IN_MEMORY", str(tmp_path / "memory"))
    real = shutil.disk_usage
    usage = real(tmp_path)
    empty = lambda path: real(path) if Path(path).parent.name == "memory" else usage._replace(free=0)
    monkeypatch.setattr(folders.shutil, "disk_usage", empty)
    assert_scales(get(new_store(), build))
    assert build.calls == 1 and list((tmp_path / "memory").iterdir()) == []
