"""What ``gsb doctor`` looks at: versions, targets, threads, the kernel cache and settings, and whether they work."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path

from .. import config
from ..deferred import can_compile, import_module
from ..extras import how_to_install
from ..system import runs_code_from
from .examine_cuda import examine_cuda
from .findings import ABSENT, BROKEN, OK, Finding

# Distribution, the module to import, and the command that installs it; the last ones are optional.
_REQUIRED = (
    ("apache-tvm", "tvm"),
    ("apache-tvm-ffi", "tvm_ffi"),
    ("torch", "torch"),
    ("numpy", "numpy"),
    ("scipy", "scipy"),
)
_NO_COMPILER = "TVM is not installed: kernels come from packs alone"
_OPTIONAL = (
    ("dgl", "dgl", "dgl"),
    ("torch-geometric", "torch_geometric", "pyg"),
    ("spconv", "spconv.pytorch", "spconv"),
)


def examine() -> list[Finding]:
    """Look at everything; no finding raises. Takes some seconds: it imports the frameworks and compiles one kernel."""
    return [*_versions(), *_cpu(), *examine_cuda(), *_threads(), *_packs(), *_cache(), *_settings()]


def exit_code(findings: list[Finding]) -> int:
    """1 when something that a user relies on is broken, otherwise 0."""
    return int(any(finding.state == BROKEN for finding in findings))


def to_dict(findings: list[Finding]) -> dict[str, object]:
    """The report for machines: ``{"healthy": bool, "findings": [{"group", "name", "state", "text"}, ...]}``."""
    return {"healthy": exit_code(findings) == 0, "findings": [asdict(finding) for finding in findings]}


def _versions() -> list[Finding]:
    group = "versions"
    findings = [
        Finding(group, "python", OK, f"{platform.python_version()} on {platform.platform()}"),
        Finding(group, "gnn-sparse-backend", OK, _version("gnn-sparse-backend") or "run from a folder, not installed"),
    ]
    for distribution, module in _REQUIRED:
        if module == "tvm" and _from_packs_alone():
            findings.append(Finding(group, distribution, ABSENT, _NO_COMPILER))
            continue
        findings.append(_import(group, distribution, module, "pip install gnn-sparse-backend"))
    for distribution, module, extra in _OPTIONAL:
        distribution, advice = _variant(distribution, module), how_to_install(extra)
        if _version(distribution) is None:
            findings.append(Finding(group, distribution, ABSENT, f"not installed: {advice}"))
        else:
            findings.append(_import(group, distribution, module, advice))
    return findings


def _from_packs_alone() -> bool:
    """Whether nothing can be compiled here, nor has to be."""
    from ..compiler.packs import PackError, packs

    try:
        return not can_compile() and bool(packs.loaded)
    except PackError:
        return False


def _import(group: str, distribution: str, module: str, advice: str) -> Finding:
    version = _version(distribution)
    if version is None:
        return Finding(group, distribution, BROKEN, f"not installed: {advice}")
    lacks = ""
    try:
        if module == "dgl":  # as `enable` imports it
            from ..integrations.core.substitutes.stand_ins import import_dgl

            lacks = import_dgl()
        import_module(module)
    except Exception as error:  # a package that fails to import may raise anything, and that is what is reported
        text = f"{version}, but import {module} fails: {type(error).__name__}: {error}"
        return Finding(group, distribution, BROKEN, text)
    return Finding(group, distribution, OK, f"{version}; {lacks}" if lacks else version)


def _variant(distribution: str, module: str) -> str:
    """The distribution that has the module, where one has a name that goes on: ``spconv-cu120`` for ``spconv``."""
    if _version(distribution) is None:
        for other in importlib.metadata.packages_distributions().get(module.partition(".")[0], ()):
            if other.startswith(f"{distribution}-"):
                return other
    return distribution


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> list[Finding]:
    finding = partial(Finding, "cpu")
    try:
        from ..compiler.cache import folders
        from ..compiler.codegen import build_shared, host_target, load
        from ..compiler.codegen.linker import find_linker

        target = host_target()
    except (ImportError, AttributeError, RuntimeError) as error:
        return [finding("target", BROKEN, f"{type(error).__name__}: {error}")]
    known, families = ("avx", "avx2", "fma", "neon", "sve"), ("avx512", "amx")
    interesting = [name for name in target.features if name in known or name.startswith(families)]
    findings = [
        finding("target", OK, f"{target}, {os.cpu_count()} cores"),
        finding("features", OK, " ".join(interesting) or "no vector extensions known"),
    ]
    if target.disabled:
        text = f"not used, the system does not report them: {' '.join(target.disabled)}"
        findings.append(finding("hidden features", OK, text))
    if target.enabled:
        enabled = " ".join(target.enabled)
        text = f"used, the system reports them though LLVM takes the processor for {target.cpu}: {enabled}"
        findings.append(finding("unexpected features", OK, text))
    linker = find_linker()
    if linker:
        findings.append(finding("linker", OK, str(shutil.which(linker[0]))))
    else:
        text = "no ld, gcc or cc: kernels, for GPUs too, are kept as LLVM text, about 50 ms slower to load"
        findings.append(finding("linker", ABSENT, text))
    if _from_packs_alone():
        return [*findings, finding("test kernel", ABSENT, _NO_COMPILER)]
    try:
        with folders.scratch() as scratch:
            _check_kernel(load(build_shared(doubling(), target, scratch))["test"])
        findings.append(finding("test kernel", OK, "compiled, loaded, and right"))
    except Exception as error:  # whatever stops a kernel is the finding
        findings.append(finding("test kernel", BROKEN, f"{type(error).__name__}: {error}"))
    return findings


def doubling(name: str = "test"):
    """``b[i] = a[i] * 2`` in a parallel loop, as a function of stage III: (n, a, b)."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.script import builder as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        n = T.arg("n", T.int32())
        a = T.arg("a", T.buffer((n,), "float32", layout=None, align=4))
        b = T.arg("b", T.buffer((n,), "float32", layout=None, align=4))
        with T.parallel(0, n) as i:
            T.buffer_store(b, a[i] * T.float32(2), [i])
    return builder.get().with_attr("global_symbol", name)


def _check_kernel(function) -> None:
    """Call ``function(n, a, b)``, which ought to double an array; RuntimeError when it does not."""
    import numpy as np
    import tvm

    expected = np.arange(1000, dtype="float32")
    a, b = tvm.runtime.tensor(expected), tvm.runtime.tensor(np.full(1000, np.nan, dtype="float32"))
    function(1000, a, b)
    if not np.array_equal(b.numpy(), 2 * expected):
        raise RuntimeError("the compiled kernel gives wrong numbers on this machine")


def _threads() -> list[Finding]:
    try:
        from ..compiler.codegen.cpu import threads

        return [Finding("threads", "pool", OK if threads.attach() else ABSENT, threads.description())]
    except (ImportError, AttributeError, RuntimeError) as error:
        return [Finding("threads", "pool", BROKEN, f"{type(error).__name__}: {error}")]


def _packs() -> list[Finding]:
    """Each pack of ``GSB_PACK``, and what of it runs here."""
    group = "packs"
    try:
        from ..compiler.packs import PackError, packs

        loaded = packs.loaded
    except ImportError as error:
        return [Finding(group, "packs", BROKEN, f"{type(error).__name__}: {error}")]
    except PackError as error:
        return [Finding(group, "GSB_PACK", BROKEN, str(error))]
    taken = packs.target()
    return [
        Finding(group, pack.path.name, OK, f"{pack}; {packs.used(pack)} used, runs here: {taken and taken.name}")
        for pack in loaded
    ] or [Finding(group, "GSB_PACK", ABSENT, "no pack is loaded: kernels come from the cache and the compiler")]


def _cache() -> list[Finding]:
    group = "kernel cache"
    try:
        from ..compiler.cache import DiskCache, UnsafeCacheError, cache_dir
    except ImportError as error:
        return [Finding(group, "folder", BROKEN, f"{type(error).__name__}: {error}")]

    folder = cache_dir()
    try:
        cache = DiskCache()
        entries, problems = cache.entries(), cache.verify()
    except (UnsafeCacheError, OSError) as error:
        return [Finding(group, "folder", BROKEN, f"{folder}: {error}")]
    findings = [Finding(group, "folder", OK, str(folder)), _writable(group, Path(folder)), _loads(group, cache.root)]
    size = sum(entry.size for entry in entries)
    findings.append(Finding(group, "kernels", OK, f"{len(entries)} ({size / 1e6:.1f} MB)"))
    # a bad entry is rebuilt when it is next asked for: worth knowing, not broken
    findings.extend(Finding(group, "bad entry", ABSENT, f"{problem}; it will be rebuilt") for problem in problems)
    return findings


def _loads(group: str, root: Path) -> Finding:
    """Whether a kernel that is written beside those of this user comes back and runs. Nothing of it is left."""
    name, existed = "loads", root.exists()
    if _from_packs_alone():
        return Finding(group, name, ABSENT, _NO_COMPILER)
    trial = None
    try:
        from ..compiler.cache.folders import create_root, make_staging

        create_root(root)
        trial = make_staging(root)
        origins = [_test_kernel(trial).origin for _ in range(2)]
    except OSError as error:
        return Finding(group, name, ABSENT, f"{root} cannot be written ({error.strerror}): kernels stay in memory")
    except Exception as error:  # whatever stops a kernel is the finding
        return Finding(group, name, BROKEN, f"{type(error).__name__}: {error}")
    finally:
        if trial is not None:
            shutil.rmtree(trial, ignore_errors=True)
        if not existed:
            with contextlib.suppress(OSError):
                root.rmdir()
    if origins != ["compiled", "disk"]:
        text = f"a kernel that was written to {root} comes from {origins[1]}: each process compiles again"
        return Finding(group, name, BROKEN, f"{text}; set GSB_CACHE_DIR")
    runs = runs_code_from(root if existed else root.parent)
    how = "" if runs else ", through memory, since the system runs no code from this folder"
    return Finding(group, name, OK, f"a kernel was written, read again and run{how}")


def _test_kernel(root: Path):
    """A kernel through a cache in ``root`` as a new process takes it, which gave the right numbers."""
    from ..compiler.cache import DiskCache, KernelStore
    from ..compiler.codegen import build_shared, host_target, load
    from ..compiler.codegen.linker import leave_text

    target = host_target()
    store = KernelStore(DiskCache(root), load, leave_text=leave_text)
    build = lambda folder: build_shared(doubling(), target, folder)
    kernel = store.get("gsb doctor", "", target, build, symbol="test")
    _check_kernel(kernel)
    return kernel


def _writable(group: str, folder: Path) -> Finding:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        return Finding(group, "writable", OK, "yes")
    if _from_packs_alone():
        return Finding(group, "writable", ABSENT, f"{existing} cannot be written, and need not be: {_NO_COMPILER}")
    return Finding(
        group, "writable", BROKEN, f"{existing} cannot be written: each process compiles again; set GSB_CACHE_DIR"
    )


def _settings() -> list[Finding]:
    """Every environment variable of the package, with its value or what holds without one, and names nobody knows."""
    group = "settings"
    findings = []
    for variable in config.VARIABLES:
        try:
            value = variable.get()
        except ValueError as error:
            findings.append(Finding(group, variable.name, BROKEN, str(error)))
            continue
        text = f"not set: {variable.default}" if value is None else f"set: {os.environ[variable.name]}"
        findings.append(Finding(group, variable.name, OK, f"{text} ({variable.effect})"))
    for name, nearest in config.unknown_variables().items():
        meant = f"; is {nearest} meant?" if nearest else ""
        findings.append(Finding(group, name, ABSENT, f"set, but nothing reads it{meant}"))
    return findings
