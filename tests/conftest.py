"""Fixtures for all tests: a zoo of small structures, real data, and memory that shows what was never written."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import inspect
import os
from pathlib import Path

import numpy as np
import pytest

from gnn_sparse_backend.deferred import import_module
from tests.selection import in_part, mark_exhaustive, part_of

# now, and not within a test that is timed; as the package does, which keeps it from building an extension in C++
import_module("tvm")
# TVMScript asks for the module of every frame above a function. Those of imports and of the interpreter's own start
# have no file, and `inspect` would look at all modules for each.
inspect.modulesbyfile |= {
    f"<frozen {name}>": name for name in ("importlib._bootstrap", "importlib._bootstrap_external", "runpy")
}
inspect.modulesbyfile["<string>"] = "__main__"


# as where there is no terminal: pytest-xdist gives its workers one of 80 columns
os.environ["COLUMNS"] = "200"


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where the tests of operators and layers have their tensors (tests/on_device.py)",
    )
    parser.addoption(
        "--part",
        type=part_of,
        metavar="N/M",
        help="run the Nth of M parts of the cases: all of them take about a day",
    )


def import_dgl_2():
    """Import a DGL 2 that cannot be imported here by itself, before a test or another conftest does."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if importlib.metadata.version("dgl").startswith("2."):
            from gnn_sparse_backend.integrations.core.substitutes.stand_ins import import_dgl

            import_dgl()


import_dgl_2()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark_exhaustive(items)
    if (part := config.getoption("--part")) is not None:
        kept, others = [], []
        for item in items:
            (kept if in_part(item.nodeid, *part) else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = kept
    if config.getoption("--device") == "cuda":
        from tests.on_device import missing, why_skipped

        lacking = missing()
        for item in items:
            if (reason := why_skipped(item, lacking)) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not visit it at each of its turns."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    if item.config.getoption("--device") != "cuda" or item.get_closest_marker("skip") is not None:
        return (yield)
    from tests.on_device import on_the_gpu

    with on_the_gpu(item):
        return (yield)


# Tests of whole layers and models, folder by folder.
_FRAMEWORKS = {"coverage", "examples", "integrations", "models"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Layers and models on one thread where test processes run side by side: at each small operator of a framework they
    would wait for each other's threads, for several times as long as it takes. Kernels on several threads are tested in
    tests/ops.
    """
    _set_few(item)
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        item.session.threads = getattr(item.session, "threads", torch.get_num_threads())
        torch.set_num_threads(1 if _FRAMEWORKS & set(item.path.parts) else item.session.threads)


# Tests of what users see, on whatever graph.
_AS_IT_COMES = {"docs", "examples", "models", "benchmarks"}


def _set_few(item) -> None:
    """Tests are of what becomes of a graph of any size, and have small ones: those marked ``few`` are of these as
    such.
    """
    from gnn_sparse_backend.planner.cpu.listed import FEW, USUAL

    as_it_comes = item.get_closest_marker("few") is not None or _AS_IT_COMES & set(item.path.parts)
    FEW.set(USUAL if as_it_comes else 0)


def _random(seed: int, rows: int, cols: int, edges: int):
    rng = np.random.default_rng(seed)
    return rng.integers(0, rows, edges), rng.integers(0, cols, edges), (rows, cols)


def _zoo() -> dict[str, tuple[np.ndarray, np.ndarray, tuple[int, int]]]:
    """name -> (row, col, shape): destinations, sources, (number of destinations, number of sources)."""
    none = np.zeros(0, dtype=np.int64)
    loops = np.arange(6)
    rng = np.random.default_rng(1)
    skewed = np.minimum(rng.zipf(1.5, 900) - 1, 99)
    return {
        "nothing": (none, none, (0, 0)),
        "no_rows": (none, none, (0, 5)),
        "no_columns": (none, none, (5, 0)),
        "no_edges": (none, none, (4, 3)),
        "one_edge": (np.array([0]), np.array([0]), (1, 1)),
        "one_column": (np.array([3, 0, 3, 2]), np.zeros(4, dtype=np.int64), (5, 1)),
        "one_row": (np.zeros(40, dtype=np.int64), rng.integers(0, 7, 40), (1, 7)),
        "self_loops": (loops, loops, (6, 6)),
        "duplicates": (np.array([2, 0, 2, 2, 0, 2]), np.array([1, 3, 0, 1, 3, 1]), (4, 5)),
        "long_row": (np.full(300, 2), rng.integers(0, 50, 300), (6, 50)),
        "last_rows_empty": _random(2, 10, 12, 30)[:2] + ((25, 12),),
        "wide": _random(3, 5, 60, 80),
        "tall": _random(4, 70, 4, 90),
        "random": _random(5, 33, 29, 200),
        "skewed": (skewed, rng.integers(0, 100, 900), (100, 100)),
    }


ZOO = _zoo()


@pytest.fixture(params=ZOO, scope="session")
def structure(request):
    """(row, col, (number of destinations, number of sources)) of each graph in the zoo, edges in no order."""
    return ZOO[request.param]


@pytest.fixture(scope="session")
def zoo():
    """The whole zoo: name -> (row, col, shape)."""
    return ZOO


@pytest.fixture(scope="session")
def gsb_data() -> Path:
    """The folder of real data that GSB_DATA names; skips where there is none."""
    folder = os.environ.get("GSB_DATA")
    if not folder:
        pytest.skip("GSB_DATA is not set: no real data on this machine")
    if not Path(folder).is_dir():
        pytest.skip(f"GSB_DATA names {folder}, which is no folder")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def threads_that_spin():
    """Plans are those of threads that spin while they wait, whatever the environment says."""
    from gnn_sparse_backend.planner import machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "threads_sleep", lambda: False)
        yield


@pytest.fixture(autouse=True)
def packs_of_its_own():
    """The packs of kernels that a test loads go with it: the next test's kernels come from where it says."""
    from gnn_sparse_backend.compiler.packs import packs

    with pytest.MonkeyPatch.context() as patch:  # a test's own is undone before its other fixtures
        patch.setattr(packs, "_loaded", packs.loaded)
        yield


@pytest.fixture
def set_threads():
    """``torch.set_num_threads``, whose effect ends with the test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def calls_to(monkeypatch):
    """``calls_to(owner, name)``: the list of the calls of a function from now on, which is found by that name in a
    module, a class or an object. It does what it does.
    """
    from tests.counting import Call

    def watch(owner, name: str) -> list[Call]:
        function, found = getattr(owner, name), []

        def noted(*arguments, **named):
            result = function(*arguments, **named)
            found.append(Call(arguments, named, result))
            return result

        bound = isinstance(inspect.getattr_static(owner, name), classmethod | staticmethod)
        monkeypatch.setattr(owner, name, staticmethod(noted) if bound else noted)
        return found

    return watch


@pytest.fixture
def set_index_bits(monkeypatch):
    """A function: structures made from now on have indices of 64 bits, as large ones have, or of 32."""
    from gnn_sparse_backend.structures import build

    limits = {32: build.INT32_LIMIT, 64: 0}
    return lambda bits: monkeypatch.setattr(build, "INT32_LIMIT", limits[bits])


@pytest.fixture
def no_data(monkeypatch):
    """This machine has no real data."""
    monkeypatch.delenv("GSB_DATA", raising=False)


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """A folder of kernels and plans that this test has for itself."""
    monkeypatch.setenv("GSB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wide_terminal(monkeypatch):
    """Tables are printed as wide as they are."""
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture
def one_thread(set_threads):
    """Small tensors: more threads only wait for each other, and sums keep one order."""
    set_threads(1)


@pytest.fixture
def poisoned_memory():
    """Memory that torch hands out uninitialised holds NaN, so that an output never written to shows."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(64).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.fixture
def acted_machine(monkeypatch):
    """What this machine has of CUDA, acted: `tests.acted_machine.acting`."""
    from tests.acted_machine import acting

    yield from acting(monkeypatch)
