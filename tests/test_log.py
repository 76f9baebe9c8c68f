"""What the package logs: kernels, plans and fallbacks, to whoever listens, and nothing where nobody does."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import config, log
from gnn_sparse_backend.compiler.cache import KernelStore
from gnn_sparse_backend.compiler.cache.store import DiskCache
from gnn_sparse_backend.integrations.core import counters

ROOT = Path(__file__).parents[1]
PLANS, KERNELS = "gnn_sparse_backend.ops.core.plans", "gnn_sparse_backend.compiler.cache.store"
FALLBACKS = "gnn_sparse_backend.integrations.core.counters"
CODE = (
    "import torch, gnn_sparse_backend as gsb\n"
    "graph = gsb.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), (2, 2))\n"
    "gsb.spmm(graph, torch.ones(2, 3))\n"
)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(log, "_told", set())


def output(tmp_path, code: str = CODE, **environment: str) -> str:
    """The error stream of a new process that runs ``code`` with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
    environment = {"GSB_CACHE_DIR": str(tmp_path / "cache")} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def told(caplog, name: str) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == name]


def a_graph() -> gsb.Graph:
    return gsb.Graph.from_coo(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 2]), (2, 3))


@pytest.mark.slow
def test_silent_by_default_then_kernels_from_the_compiler_and_from_disk(tmp_path):
    assert output(tmp_path) == ""
    loaded = output(tmp_path, GSB_LOG="info")
    assert f"INFO {KERNELS}: kernel " in loaded and " from disk in " in loaded and "compiled" not in loaded
    compiled = output(tmp_path / "another", GSB_LOG="info")
    assert " ms, kept on disk" in compiled and "from disk" not in compiled
    assert f"INFO {PLANS}: plan of sum:column, 3 features in float32, on Graph(" in compiled
    assert "From " not in compiled and "DEBUG" not in compiled


@pytest.mark.slow
def test_debug_has_reasons(tmp_path):
    assert ". From rules: " in output(tmp_path, GSB_LOG="debug")


@pytest.mark.exhaustive
def test_logging_that_is_configured_by_the_user_gets_the_same(tmp_path):
    code = "import logging; logging.basicConfig(level='INFO', format='mine %(message)s')\n" + CODE
    lines = output(tmp_path, code).splitlines()
    assert any(line.startswith("mine plan of sum:column") for line in lines)
    assert any(line.startswith("mine kernel ") and "compiled in" in line for line in lines)


def test_the_tree_has_one_root_that_does_not_speak():
    assert log.ROOT.name == "gnn_sparse_backend"
    assert sum(type(handler) is logging.NullHandler for handler in log.ROOT.handlers) == 1
    assert all(logging.getLogger(name).parent is not None for name in (PLANS, KERNELS, FALLBACKS))


def test_a_plan_is_told_when_first_met_and_at_debug_for_every_graph(caplog):
    x = torch.ones(3, 3)
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        gsb.spmm(a_graph(), x)
        gsb.spmm(a_graph(), x)
        assert [level for level, _ in told(caplog, PLANS)] == [logging.INFO]
        gsb.spmm(a_graph(), torch.ones(3, 5))
        assert [level for level, _ in told(caplog, PLANS)] == [logging.INFO] * 2, "another width"
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "gnn_sparse_backend"):
        graph = a_graph()
        gsb.spmm(graph, x)
        gsb.spmm(graph, x)
    found = told(caplog, PLANS)
    assert [level for level, _ in found] == [logging.DEBUG], "once for a graph"
    assert ". From rules: " in found[0][1]


def test_a_listener_that_comes_later_misses_nothing(caplog):
    gsb.spmm(a_graph(), torch.ones(3, 3))
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        gsb.spmm(a_graph(), torch.ones(3, 3))
    assert [level for level, _ in told(caplog, PLANS)] == [logging.INFO]


def test_attention_has_a_plan_that_is_told(caplog):
    x = torch.ones(3, 4, requires_grad=True)
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        gsb.attention(a_graph(), torch.ones(2, 4), x, x).sum().backward()
    assert any(text.startswith("plan of attention, by rules, on Graph(") for _, text in told(caplog, PLANS))


def test_a_fallback_is_told_once_for_each_reason(caplog):
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        for reason in ("too odd", "too odd", "too even"):
            counters.fallback("dgl", "gspmm", reason)
    assert told(caplog, FALLBACKS) == [
        (logging.INFO, "dgl runs gspmm itself: too odd"),
        (logging.INFO, "dgl runs gspmm itself: too even"),
    ]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "gnn_sparse_backend"):
        counters.fallback("dgl", "gspmm", "too odd")
    assert told(caplog, FALLBACKS) == [(logging.DEBUG, "dgl runs gspmm itself: too odd")]
    counters.reset_status()


def test_what_is_remembered_is_bounded(caplog, monkeypatch):
    monkeypatch.setattr(log, "MOST_TOLD", 2)
    logger = logging.getLogger("gnn_sparse_backend.test")
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        for number in range(5):
            log.first_at_info(logger, number, "number %d", number)
    assert len(told(caplog, logger.name)) == 5 and len(log._told) <= 2


def test_kernels_tell_where_they_come_from(caplog, tmp_path):
    built, source = [], tmp_path / "library.bin"
    source.write_bytes(b"anything")

    def build(folder: Path) -> str:
        built.append(folder)
        (folder / "library.bin").write_bytes(source.read_bytes())
        return "library.bin"

    def store(disk: DiskCache | None) -> KernelStore:
        return KernelStore(disk, lambda path: {"main": print})

    disk = DiskCache(tmp_path / "cache")
    with caplog.at_level(logging.DEBUG, KERNELS):
        first = store(disk)
        for each in (first, first, store(disk), store(None)):
            each.get("program", "plan", "target", build, name="scale")
    words = ["compiled in", "from memory", "from disk in", "compiled in"]
    found = told(caplog, KERNELS)
    assert [level for level, _ in found] == [logging.INFO, logging.DEBUG, logging.INFO, logging.INFO]
    assert all(text.startswith("kernel scale ") and word in text for word, (_, text) in zip(words, found, strict=True))
    assert found[0][1].endswith("kept on disk") and found[3][1].endswith("not kept on disk") and len(built) == 2


def test_a_call_asks_no_logger(monkeypatch):
    """Once kernel and plan are known, nothing of a call looks whether somebody listens."""
    graph, x = a_graph(), torch.ones(3, 3)
    gsb.spmm(graph, x)

    def asked(*arguments):
        raise AssertionError("a logger was asked")

    for name in (PLANS, KERNELS):
        monkeypatch.setattr(logging.getLogger(name), "isEnabledFor", asked)
        monkeypatch.setattr(logging.getLogger(name), "debug", asked)
    gsb.spmm(graph, x)
    with pytest.raises(AssertionError, match="a logger was asked"):
        gsb.spmm(a_graph(), x)
