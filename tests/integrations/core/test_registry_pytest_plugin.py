"""Anybody's tests with a framework enabled: `pytest -p gnn_sparse_backend.integrations.pytest_plugin --gsb NAME`."""

import json
import sys

import pytest

import gnn_sparse_backend as gsb
import gnn_sparse_backend.integrations.torch  # with all that enabling imports
from gnn_sparse_backend.integrations.core import counters, registry

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "gnn_sparse_backend.integrations.pytest_plugin")


@pytest.fixture
def made_up(monkeypatch):
    """A framework of that name, and nothing enabled or counted."""
    for table in (registry._registered, registry._active, counters._ours, counters._fallbacks):
        monkeypatch.setattr(*_home(table), {})
    registry.register("made_up", lambda: None, lambda: None)


def _home(table):
    return next(
        (module, name) for module in (registry, counters) for name, value in vars(module).items() if value is table
    )


class Imported:
    """The modules that are there when a run inside ends, none where it does not begin."""

    names: frozenset[str] = frozenset()

    def pytest_unconfigure(self):
        self.names = frozenset(sys.modules)


def _inside(pytester, *arguments):
    # in this process, so that the tests inside see the made-up framework
    imported = Imported()
    result = pytester.runpytest_inprocess(*PLUGIN, "-p", "no:xdist", *arguments, plugins=[imported])
    # what is first imported inside is forgotten, and operators would be registered twice by whoever imports it again
    forgotten = imported.names - set(sys.modules) - set(PLUGIN)
    assert not [name for name in forgotten if name.partition(".")[0] in ("gnn_sparse_backend", "torch")]
    return result


def test_enabled_from_collection_to_the_end_and_not_after(pytester, made_up):
    pytester.makepyfile("""
        import gnn_sparse_backend as gsb
        from gnn_sparse_backend.integrations.core import counters

        while_collected = gsb.status().enabled

        def test_it():
            counters.ours("made_up", "spmm")
            counters.fallback("made_up", "spmm", "too odd")
            assert while_collected == gsb.status().enabled == ("made_up",)
    """)
    result = _inside(pytester, "--gsb", "made_up", "--gsb-report", "counts.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*enabled: made_up", "*spmm*1*1*too odd: 1"])
    assert json.loads((pytester.path / "counts.json").read_text()) == {
        "enabled": ["made_up"],
        "calls": {"made_up": {"spmm": {"ours": 1, "fallbacks": {"too odd": 1}}}},
        "packs": [],
        "lost": 0,
    }
    assert gsb.status().enabled == ()


def test_nothing_is_enabled_where_nothing_is_asked_for(pytester, made_up):
    pytester.makepyfile("import gnn_sparse_backend as gsb\ndef test_it(): assert gsb.status().enabled == ()")
    result = _inside(pytester)
    result.assert_outcomes(passed=1)
    assert "no calls yet" not in result.stdout.str()


def test_an_unknown_framework_is_named_before_any_test_runs(pytester, made_up):
    pytester.makepyfile("def test_it(): pass")
    result = _inside(pytester, "--gsb", "dgll")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gsb dgll: unknown framework 'dgll': choose one of *'made_up'*"])
