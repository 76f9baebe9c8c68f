"""What is kept by shape and type: bounded, counted, and by one mechanism."""

from __future__ import annotations

import ast
import gc
import sys
import threading
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.cache import CacheStatistics, statistics, store
from gnn_sparse_backend.compiler.cache.bounded import KernelCache, keeping, kept, make_room, shared
from tests.compiler.cache.helpers import assert_scales, get, load

PACKAGE = Path(store.__file__).parents[2]
# Caches without a bound, by module and function, and why they cannot grow.
FINITE = {
    ("compiler.packs.processor", "usable_flags"): "no arguments",
    ("compiler.packs.toolchain", "calling_versions"): "no arguments",
    ("compiler.packs.toolchain", "toolchain"): "no arguments",
    ("compiler.cache.background", "in_background"): "no arguments",
    ("compiler.codegen.cpu.functions", "features"): "no arguments; of one function that is being compiled",
    ("compiler.codegen.cpu.checks", "provide_checks"): "no arguments",
    ("compiler.codegen.cpu.host", "native_target"): "no arguments",
    ("compiler.codegen.cpu.launcher", "launcher_state"): "no arguments",
    ("compiler.codegen.cpu.pipeline", "cpu_pipeline"): "no arguments",
    ("compiler.codegen.cpu.workspace", "provide_runtime"): "no arguments",
    ("compiler.codegen.cuda.library", "cuda_compiler"): "no arguments",
    ("compiler.codegen.cuda.nvidia", "find_library"): "the libraries of NVIDIA that this package names",
    ("compiler.codegen.cuda.nvrtc", "_library"): "no arguments",
    ("compiler.codegen.target", "_tvm_target"): "processors and GPUs that code is made for",
    ("deferred", "_import_tvm"): "no arguments",
    ("deferred", "_keep_tvm_from_building"): "no arguments",
    ("deferred", "_library"): "names of two libraries",
    ("deferred", "can_compile"): "no arguments",
    ("deferred", "sparse_tools"): "no arguments",
    ("integrations.dgl.sddmm", "form_of"): "operators of DGL, and ends of its edges",
    ("integrations.dgl.spmm", "_jit_ties"): "types",
    ("integrations.lazy.arithmetic", "_promote"): "pairs of types",
    ("integrations.traced.entry_points", "_passes"): "no arguments",
    ("ops.core.plans_cuda", "_gpu"): "GPUs of the machine",
    ("planner.cuda.cost", "default_units"): "kinds of GPUs",
    ("planner.machine", "caches"): "no arguments",
    ("planner.machine", "last_level_cache_bytes"): "no arguments",
    ("planner.machine", "machine_name"): "no arguments",
    ("planner.machine", "private_cache_bytes"): "no arguments",
    ("planner.machine", "threads_sleep"): "no arguments",
    ("runtime.large_blocks", "blocks"): "no arguments",
    ("runtime.devices", "_cuda_arch"): "devices of the machine",
    ("runtime.devices", "_why_not"): "devices of the machine",
    ("tensor.storage.values", "_name"): "types",
}
# Containers of modules that are filled later, and why they cannot grow, or must.
FILLED = {
    ("compiler.cache.bounded", "_functions"): "functions of modules",
    ("compiler.codegen.loaded", "_of_gpus"): "grows: code of a GPU is never unloaded, see load",
    ("compiler.own_schedules", "SCHEDULED"): "names of operators",
    ("compiler.own_schedules", "_described"): "types of specs",
    ("dynamo", "_waiting"): "modules of PyTorch that this package waits for, each until it is imported",
    ("formats.composed.registry", "FORMATS"): "formats, each registered by name",
    ("integrations.core.substitutes.faces", "_replaced"): "libraries, each until it is disabled",
    ("integrations.core.substitutes.namespaces", "_LIBRARIES"): "libraries of operators, each by its namespace",
    ("frozen", "_codes"): "texts of methods, which differ in the number and the kinds of fields of a class",
    ("integrations.core.counters", "_fallbacks"): "operators of frameworks, and reasons, which are fixed texts",
    ("integrations.core.counters", "_first"): "as many as reasons",
    ("integrations.core.counters", "_ours"): "operators of frameworks",
    ("integrations.core.registry", "IMMEDIATE"): "frameworks",
    ("integrations.core.registry", "_active"): "frameworks",
    ("integrations.core.registry", "_registered"): "frameworks",
    ("integrations.lazy.handlers", "OPERATIONS"): "functions of PyTorch",
    ("integrations.traced.entry_points", "_installed"): "two settings of Inductor",
    ("integrations.lazy.tensor", "HANDLERS"): "functions of PyTorch",
    ("integrations.pyg", "_replaced"): "functions of PyG",
    ("integrations.pyg.few.kinds", "_layers"): "layers, each as long as it lives",
    ("integrations.traced.eager_region", "_left"): "folders of frameworks",
    ("integrations.traced.entry_points", "_names"): "frameworks",
    ("log", "_told"): "emptied at MOST_TOLD",
    ("ops.core.executable", "_builders"): "kinds of programs and plans",
    ("ops.core.library", "OPERATORS"): "operators of this package",
    ("ops.core.library", "_libraries"): "operators of this package",
    ("ops.core.partitioned", "PLACED"): "operators of this package",
    ("ops.core.prepared", "KINDS"): "kinds of structures",
    ("ops.core.prepared", "PREPARED"): "operators of this package",
    ("planner.plan", "STRATEGIES"): "strategies of this package",
    ("runtime.accounts", "ACCOUNTS"): "functions of this package",
    ("runtime.without_kernels", "_counts"): "operators of this package",
    ("runtime.without_kernels", "_definitions"): "operators of this package",
    ("runtime.without_kernels", "_in_programs"): "operators of this package",
}


def of(name: str) -> CacheStatistics | None:
    return next((each for each in statistics() if each.name == name), None)


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_a_cache_has_at_most_so_many_entries(most):
    cache = KernelCache("test", most)
    for number in range(20):
        assert cache.keep(number, str(number)) == str(number)
        assert len(cache) <= most and cache[number] == str(number)
        assert list(cache) == [*range(number + 1 - len(cache), number + 1)]  # the older go first
    assert (cache.made, cache.dropped) == (20, 20 - len(cache))


def test_what_is_found_is_not_made_again():
    cache, made = KernelCache("test", 4), []

    def make():
        made.append(1)
        return "value"

    assert [cache.found("key", make) for _ in range(3)] == ["value"] * 3
    assert len(made) == cache.made == 1


def test_caches_are_told_apart_by_identity():
    one, other = KernelCache("test"), KernelCache("test")
    assert one == one and not one == other and len({one, other}) == 2


def test_room_is_made_at_the_bound_and_not_before():
    entries = dict.fromkeys(range(6))
    assert make_room(entries, 7) == 0 and len(entries) == 6
    entries = dict.fromkeys(range(6), "value")
    assert make_room(entries, 6) == 3 and list(entries) == [3, 4, 5]
    assert make_room({}, 1) == 0


def test_statistics_of_caches_that_live():
    one, other = shared("test of statistics", 4), shared("test of statistics", 2)
    for number in range(3):
        one.keep(number, number)
        other.keep(number, number)
    assert of("test of statistics") == CacheStatistics("test of statistics", 5, 6, 6, 1)
    del one
    gc.collect()
    assert of("test of statistics") == CacheStatistics("test of statistics", 2, 2, 3, 1)
    del other
    gc.collect()
    assert of("test of statistics") is None


def test_statistics_of_functions():
    @keeping(3)
    def square(x: int) -> int:
        return x * x

    @kept
    def cube(x: int) -> int:
        return x * x * x

    assert [square(x) for x in (1, 2, 3, 4, 4, 1)] == [1, 4, 9, 16, 16, 1] and cube(2) == cube(2) == 8
    name = f"{__name__}.{test_statistics_of_functions.__name__}.<locals>."
    assert of(f"{name}square") == CacheStatistics(f"{name}square", 3, 3, 5, 2)
    assert of(f"{name}cube") == CacheStatistics(f"{name}cube", 1, 1024, 1, 0)


def test_statistics_are_in_the_order_of_names():
    names = [each.name for each in statistics()]
    assert names == sorted(names) and len(set(names)) == len(names)


def test_threads_that_fill_one_cache():
    before = sys.getswitchinterval()
    cache, wrong, start = KernelCache("test", 16), [], threading.Barrier(4)

    def work(first: int) -> None:
        start.wait()
        try:
            for number in range(first, first + 3000):
                assert cache.found(number % 97, lambda number=number: str(number % 97)) == str(number % 97)
                assert len(cache) < 16 + 4  # each may add one between the count and its own
        except Exception as error:
            wrong.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(31 * each,)) for each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_a_store_forgets_the_older_kernels(new_store, build, monkeypatch):
    """And with them their libraries, but for a kernel that somebody holds."""
    monkeypatch.setattr(store, "MOST_KERNELS", 4)
    kernels = new_store()
    held = get(kernels, build, "program 0")
    for number in range(1, 12):
        get(kernels, build, f"program {number}")
        assert len(kernels._kernels) <= 4
    assert get(kernels, build, "program 0") is not held
    assert (kernels.stats().compiles, kernels.stats().disk_loads) == (12, 1)  # the forgotten one is on disk
    assert_scales(held)
    if sys.platform == "linux":
        gc.collect()
        root = str(kernels.disk.root)
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if root in line}
        assert 1 <= len(mapped) <= len(kernels._kernels) + 1


def test_kernels_of_a_store_are_counted(new_store, build):
    before = of("kernels") or CacheStatistics("kernels", 0, 0, 0, 0)
    kernels = new_store()
    get(kernels, build)
    now = of("kernels")
    assert (now.entries - before.entries, now.most - before.most) == (1, store.MOST_KERNELS)


def test_a_build_that_fails_leaves_nothing(root):
    kernels = store.KernelStore(None, load)

    def fails(folder):
        raise OSError("no compiler")

    for number in range(3):
        with pytest.raises(OSError, match="no compiler"):
            get(kernels, fails, f"program {number}")
    assert not kernels._kernels and not kernels._key_locks


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_of(node: ast.expr) -> str:
    """``functools.cache`` of ``@functools.cache`` and of ``functools.lru_cache(maxsize=None)``."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def without_bound(tree: ast.Module):
    """Names of what is cached by ``functools`` alone."""
    caches = {"functools.cache", "functools.lru_cache", "cache", "lru_cache"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(name_of(decorator) in caches for decorator in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call = node.value.func  # functools.lru_cache(...)(function)
            if name_of(call) in caches:
                yield ast.unparse(node.targets[0])


def filled_later(tree: ast.Module):
    """Names of empty containers of a module."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = node.value
            empty = (
                isinstance(value, (ast.Dict, ast.List, ast.Set))
                and not (value.keys if isinstance(value, ast.Dict) else value.elts)
            ) or ast.unparse(value) in ("set()", "dict()", "list()")
            if empty:
                yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def test_everything_else_that_is_kept_cannot_grow():
    trees = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    for find, known in ((without_bound, FINITE), (filled_later, FILLED)):
        found = {(module, name) for module, tree in trees.items() for name in find(tree)}
        assert found - {("compiler.cache.bounded", "cached")} == set(known)


def test_what_is_kept_without_a_bound_is_seen():
    planted = """
import functools
@functools.lru_cache(maxsize=None)
def one(x): ...
two = functools.lru_cache(maxsize=None)(one)
class Three:
    @cache
    def three(self): ...
four: dict[str, int] = {}
five = set()
full = {1: 2}
"""
    tree = ast.parse(planted)
    assert [*without_bound(tree)] == ["one", "two", "three"] and [*filled_later(tree)] == ["four", "five"]
