"""The one module that knows operating systems, with each of them acted, and what the package does there."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import system
from gnn_sparse_backend.compiler.cache import folders
from gnn_sparse_backend.compiler.codegen import BuildError, build_shared, host_target, linker, load
from gnn_sparse_backend.compiler.codegen import opened as opened_module
from gnn_sparse_backend.compiler.codegen.cpu import threads
from gnn_sparse_backend.compiler.codegen.target import Target
from gnn_sparse_backend.compiler.packs import processor
from gnn_sparse_backend.runtime.pool import Pool
from tests.compiler.codegen.kernels import double

PACKAGE = Path(gsb.__file__).parent
KNOWS = re.compile(
    r"sys\.platform|os\.name\b|platform\.(?:system|machine|processor)\(|hasattr\(os, |hasattr\(mmap|/proc/|/sys/"
    r"|/dev/shm|memfd_create|sched_getaffinity|geteuid|register_at_fork|RTLD_NOLOAD|windll|WinDLL|MADV_|CDLL\(None\)"
)
PLATFORMS = {"linux": "linux", "macos": "darwin", "windows": "win32"}
linux_only = pytest.mark.skipif(system.name() != system.LINUX, reason="what Linux has")


@pytest.fixture
def acted(monkeypatch):
    """``acted(platform, machine)``: what Python says of the system from now on, which has nothing that Linux alone has;
    another platform's files and libraries are not there either.
    """

    def act(platform: str, machine: str = "x86_64") -> None:
        monkeypatch.setattr(sys, "platform", PLATFORMS[platform])
        monkeypatch.setattr(system.platform, "machine", lambda: machine)
        if platform != "linux":
            for name in ("memfd_create", "sched_getaffinity"):
                monkeypatch.delattr(os, name, raising=False)
            monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
            monkeypatch.setattr(system, "_lines", lambda path: [])
        if platform == "windows":
            for name in ("geteuid", "register_at_fork"):
                monkeypatch.delattr(os, name, raising=False)
            monkeypatch.delattr(mmap, "MAP_PRIVATE", raising=False)
        processor.usable_flags.cache_clear()

    yield act
    monkeypatch.undo()
    processor.usable_flags.cache_clear()


def test_no_other_module_knows_operating_systems():
    knowing = {
        path.relative_to(PACKAGE).as_posix(): found
        for path in sorted(PACKAGE.rglob("*.py"))
        if (found := sorted({match[0] for match in KNOWS.finditer(path.read_text(encoding="utf-8"))}))
    }
    assert list(knowing) == ["system.py"], knowing


@pytest.mark.parametrize(
    "platform, machine, name, architecture, code",
    [
        ("linux", "aarch64", "linux", "aarch64", "aarch64"),
        ("linux", "x86_64", "linux", "x86_64", "x86_64"),
        ("macos", "arm64", "darwin", "aarch64", "aarch64-darwin"),
        ("windows", "AMD64", "windows", "x86_64", "x86_64-windows"),
        ("windows", "ARM64", "windows", "aarch64", "aarch64-windows"),
    ],
)
def test_what_the_machine_is(acted, platform, machine, name, architecture, code):
    acted(platform, machine)
    assert (system.name(), system.architecture(), system.machine()) == (name, architecture, code)
    assert system.cores() >= 1 and system.memory()[0] > 1 << 20


@pytest.mark.parametrize(
    "triple, machine",
    [
        ("x86_64-conda-linux-gnu", "x86_64"),
        ("aarch64-linux-gnu", "aarch64"),
        ("arm64-apple-macosx14.0.0", "aarch64-darwin"),
        ("arm64-apple-darwin23.1.0", "aarch64-darwin"),
        ("x86_64-apple-darwin", "x86_64-darwin"),
        ("x86_64-pc-windows-msvc", "x86_64-windows"),
        ("aarch64-pc-windows-msvc19.40", "aarch64-windows"),
    ],
)
def test_targets_of_other_systems(triple, machine):
    assert Target("llvm", "generic", triple).machine == machine


# What processors can do


def test_flags_of_arm_come_from_the_kernel(acted, monkeypatch):
    """A Neoverse V1 with vectors of 256 bits; another one, whose system hides them, takes no code for the first."""
    words = {16: 1 << 1 | 1 | 1 << 20 | 1 << 22, 26: 1 << 13 | 1 << 14}
    acted("linux", "aarch64")
    monkeypatch.setattr(
        system,
        "this_process",
        lambda: SimpleNamespace(getauxval=_Function(words.__getitem__), prctl=lambda _: 1 << 16 | 32),
    )
    assert processor.usable_flags() == {"fp", "asimd", "asimddp", "sve", "sve256", "i8mm", "bf16"}
    needs = processor.needs_of("aarch64", ("neon", "bf16", "sve", "fp-armv8", "v8.4a"), 32)
    assert needs == ("asimd", "bf16", "fp", "sve", "sve256") and not processor.lacking("aarch64", needs)
    words[16] &= ~(1 << 22)
    processor.usable_flags.cache_clear()
    assert processor.lacking("aarch64", needs) == ("sve", "sve256")
    assert processor.lacking("x86_64", ()) == ("an x86_64 processor",)


class _Function:
    """A function of a library, which is told its types."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *arguments):
        return self._function(*arguments)


@pytest.mark.parametrize("platform", ["macos", "windows"])
def test_elsewhere_nothing_is_asked(acted, monkeypatch, platform):
    acted(platform, "arm64")
    monkeypatch.setattr(system, "this_process", lambda: pytest.fail("asked"))
    assert system.processor_flags() == frozenset() and system.sve_bytes() == 0
    assert not system.may_use_tiles() and not system.has_known_allocator() and system.cpuinfo() == ""


def test_caches_of_macos(acted, monkeypatch):
    values = {
        b"hw.perflevel0.l1dcachesize": struct.pack("=q", 128 << 10),
        b"hw.perflevel0.l2cachesize": struct.pack("=q", 12 << 20),
        b"machdep.cpu.brand_string": b"Apple M1\0",
    }

    def sysctlbyname(key, into, size, new, length):
        if key not in values:
            return -1
        if into is not None:
            ctypes.memmove(into, values[key], len(values[key]))
        size._obj.value = len(values[key])
        return 0

    monkeypatch.setattr(system, "this_process", lambda: SimpleNamespace(sysctlbyname=sysctlbyname))
    acted("macos", "arm64")
    assert system.caches() == {1: 128 << 10, 2: 12 << 20}
    assert system.processor_model() == "Apple M1"


def test_caches_of_windows(acted, monkeypatch):
    def record(relation, level, size, kind):
        return struct.pack("<QI4xBBHII8x", 1, relation, level, 8, 64, size, kind)[:32]

    records = record(2, 1, 32 << 10, 2) + record(2, 1, 64 << 10, 1) + record(0, 9, 1, 0) + record(2, 2, 1 << 20, 0)
    monkeypatch.setattr(system, "_processor_information", lambda: records)
    acted("windows", "AMD64")
    assert system.caches() == {1: 32 << 10, 2: 1 << 20}


# Linking


def test_linkers_of_macos(acted, monkeypatch):
    acted("macos", "arm64")
    tools = []
    monkeypatch.setattr(linker.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        system.subprocess, "run", lambda *_, **__: tools.append(1) or SimpleNamespace(returncode=len(tools) == 1)
    )
    own = Target("llvm", "apple-m1", "arm64-apple-macosx14.0.0")
    assert linker.linker_for(own)[0] == "clang", "the tools of the first command were not there"
    command = linker.linker_for(own)
    assert command == ("cc", "-dynamiclib", "-Wl,-undefined,dynamic_lookup") and "-z" not in command
    monkeypatch.setattr(linker.shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="xcode-select --install"):
        linker.needed_linker("k", own)


def test_windows_links_nothing(acted, monkeypatch):
    acted("windows", "AMD64")
    monkeypatch.setattr(linker.shutil, "which", lambda name: pytest.fail("MinGW's ld takes other options"))
    own = Target("llvm", "x86-64", "x86_64-pc-windows-msvc")
    assert linker.linker_for(own) is None
    with pytest.raises(BuildError, match="LLVM text"):
        linker.needed_linker("k", own)
    with pytest.raises(BuildError, match="on such a machine alone"):
        linker.needed_linker("k", Target("llvm", "apple-m1", "arm64-apple-macosx14.0.0"))


@pytest.mark.parametrize("platform", ["macos", "windows"])
def test_without_a_linker_a_kernel_is_compiled_where_it_is_loaded(platform, monkeypatch, tmp_path):
    """As on a Mac without Apple's tools, and on Windows: the text of a kernel, loaded through LLVM."""
    own = host_target()
    acted = {"macos": linker.MACOS_LINKERS, "windows": ()}[platform]
    monkeypatch.setattr(linker, "LINKERS", acted)
    monkeypatch.setattr(linker.shutil, "which", lambda name: None)
    path = build_shared(double, own, tmp_path)
    assert path.suffix == ".ll"
    a, b = torch.randn(100), torch.zeros(100)
    load(path)["double"](100, a, b)
    assert torch.equal(b, 2 * a)


# Files and memory


@pytest.mark.parametrize("platform", ["macos", "windows"])
def test_without_files_in_memory(acted, platform, tmp_path, monkeypatch):
    """Libraries and objects go through a folder of temporary files."""
    path = build_shared(double, host_target(), tmp_path)
    acted(platform)
    monkeypatch.setattr(opened_module.tempfile, "tempdir", str(tmp_path))
    assert system.file_in_memory("x") is None
    with opened_module.readable(b"some bytes", "name.txt") as where:
        assert Path(where).parent.parent == tmp_path and Path(where).read_bytes() == b"some bytes"
    assert not Path(where).exists()
    monkeypatch.setattr(sys, "platform", "linux")  # whose loader opens it
    module = opened_module.open_packed("double", path.read_bytes())
    a, b = torch.randn(10), torch.zeros(10)
    threads.share(module)
    module.get_function("double")(10, a, b)
    assert torch.equal(b, 2 * a)


def test_windows_says_nothing_of_owners(acted, tmp_path):
    """All folders have mode 777 there, as far as Python can tell."""
    tmp_path.chmod(0o777)
    acted("windows", "AMD64")
    assert system.user() is None
    folders.create_root(tmp_path / "cache")
    folders.write_file(tmp_path / "cache" / "a", b"1\n2")
    assert folders.read_file(tmp_path / "cache" / "a") == b"1\n2"


@linux_only
def test_linux_says_who_owns_a_folder(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(folders.UnsafeCacheError, match="everybody can write"):
        folders.create_root(tmp_path / "cache")


def test_without_private_memory_no_pool(acted, monkeypatch):
    from gnn_sparse_backend.runtime import pool

    acted("windows", "AMD64")
    assert pool._limit(2) == 0
    acted("macos", "arm64")
    monkeypatch.setattr(mmap, "MAP_PRIVATE", 2, raising=False)
    view = Pool(1 << 30).lease(1 << 20)
    view[:3] = b"abc"
    assert bytes(view[:4]) == b"abc\0"


def test_forks_where_there_are_none(acted):
    called = []
    acted("windows", "AMD64")
    system.after_fork(lambda: called.append(1))
    assert called == []


# Threads


def test_libraries_of_macos(acted, monkeypatch):
    images = [b"/usr/lib/libSystem.B.dylib", b"/x/torch/lib/libtorch_cpu.dylib"]
    process = SimpleNamespace(_dyld_image_count=lambda: len(images), _dyld_get_image_name=_Function(images.__getitem__))
    asked = []
    acted("macos", "arm64")
    monkeypatch.setattr(system, "this_process", lambda: process)
    monkeypatch.setattr(system.ctypes, "CDLL", lambda path, mode: asked.append((path, mode)) or "library")
    assert system.open_loaded("torch_cpu") == [process, "library"]
    assert asked == [("/x/torch/lib/libtorch_cpu.dylib", os.RTLD_NOLOAD | os.RTLD_LAZY)]
    assert system.open_loaded("torch_cuda") is None


def test_openmp_that_cannot_be_shared(acted):
    """Windows tells nobody through this; its PyTorch has another OpenMP. Kernels run on TVM's threads there."""
    acted("windows", "AMD64")
    assert system.open_loaded("torch_cpu") is None and threads.find_torch_openmp() is None


@linux_only
def test_the_library_of_a_function():
    """One that nobody has the address of: a Python at a fixed address may have an entry of its own for ``malloc``."""
    path = torch._C.__file__
    assert system.library_at(ctypes.cast(ctypes.CDLL(path).PyInit__C, ctypes.c_void_p).value) == path
    assert system.library_at(16) == "unknown library"


def test_a_worker_waits_without_what_windows_lacks():
    """Its requests come through a pipe, on which Windows has no ``select``."""
    from gnn_sparse_backend.compiler.codegen import elsewhere

    code = f"import sys; sys.path[:] = {sys.path!r}; from {elsewhere.__name__} import serve; serve()"
    ended = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == 0 and "select" not in Path(elsewhere.__file__).read_text()
