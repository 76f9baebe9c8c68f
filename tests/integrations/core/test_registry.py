"""enable, disable, enabled: state, order, errors and threads. A made-up framework stands in for a real one."""

import importlib.util
import threading
import warnings

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import KernelCacheWarning
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.integrations.core.patch import Patches


class Framework:
    """Something with an operator to patch, and a record of what was asked of it."""

    def __init__(self, name):
        self.name, self.calls = name, []
        self.patches = Patches()

    def operator(self):
        return "theirs"

    def activate(self):
        self.calls.append("activate")
        self.patches.set(self, "operator", lambda: "ours")

    def deactivate(self):
        self.calls.append("deactivate")
        self.patches.undo()


@pytest.fixture
def framework(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_active", {})

    def make(name="made_up"):
        one = Framework(name)
        registry.register(name, one.activate, one.deactivate)
        return one

    return make


def test_enable_and_disable_are_idempotent(framework):
    one = framework()
    gsb.enable("made_up")
    gsb.enable("made_up")
    assert one.operator() == "ours" and one.calls == ["activate"]
    assert gsb.status().enabled == ("made_up",)
    gsb.disable("made_up")
    gsb.disable("made_up")
    assert one.operator() == "theirs" and one.calls == ["activate", "deactivate"]
    assert gsb.status().enabled == ()


def test_disable_without_a_name_switches_off_the_last_enabled_first(framework):
    order = []
    for name in ("first", "second", "third"):
        registry.register(name, lambda: None, lambda name=name: order.append(name))
        gsb.enable(name)
    gsb.disable()
    assert order == ["third", "second", "first"]


def test_unknown_names_are_quoted_with_the_known_ones(framework):
    framework()
    for switch in (gsb.enable, gsb.disable, lambda name: gsb.enabled(name).__enter__()):
        with pytest.raises(ValueError, match="'pgy'.*'dgl', 'flex_attention', 'made_up', 'pyg'"):
            switch("pgy")
    with pytest.raises(ValueError, match="needs the name"):
        gsb.enabled().__enter__()


def test_a_framework_that_is_not_installed_is_named_with_the_remedy(framework, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "dgl" else find_spec(name, *rest)
    )
    with pytest.raises(ImportError, match=r"pip install .gnn-sparse-backend\[dgl\]"):
        gsb.enable("dgl")
    assert gsb.status().enabled == ()


def test_enabled_restores_what_was_there(framework):
    one, other = framework("one"), framework("other")
    gsb.enable("one")
    with gsb.enabled("one", "other"):
        assert (one.operator(), other.operator()) == ("ours", "ours")
        with gsb.enabled("other"):
            pass
        assert other.operator() == "ours"
        gsb.disable()
        assert (one.operator(), other.operator()) == ("theirs", "theirs")
    assert (one.operator(), other.operator()) == ("ours", "theirs")


def test_enabled_restores_after_an_error_inside_and_while_enabling(framework):
    one = framework("one")
    with pytest.raises(ZeroDivisionError):
        with gsb.enabled("one"):
            raise ZeroDivisionError
    assert one.operator() == "theirs"

    def fail():
        raise OSError("library not found")

    registry.register("broken", fail, lambda: None)
    with pytest.raises(OSError, match="library not found"):
        with gsb.enabled("one", "broken"):
            pass
    assert one.operator() == "theirs" and gsb.status().enabled == ()


def test_a_failed_activation_is_taken_back(framework):
    one = framework("one")

    def activate():
        one.activate()
        raise RuntimeError("half way")

    registry.register("half", activate, one.deactivate)
    with pytest.raises(RuntimeError, match="half way"):
        gsb.enable("half")
    assert one.operator() == "theirs" and gsb.status().enabled == ()


def test_names_in_use_cannot_be_registered(framework):
    one = framework("one")
    gsb.enable("one")
    for name in ("one", "dgl", "pyg"):
        with pytest.raises(ValueError, match=repr(name)):
            registry.register(name, one.activate, one.deactivate)


def test_threads_that_enable_together_activate_once(framework):
    one = framework("one")
    start = threading.Barrier(8)

    def switch():
        start.wait()
        for _ in range(50):
            gsb.enable("one")

    threads = [threading.Thread(target=switch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.calls == ["activate"]


class Owner:
    @staticmethod
    def static():
        return 1

    def method(self):
        return 2


class Heir(Owner):
    pass


def test_patches_restore_the_very_objects_and_absences():
    static, method = vars(Owner)["static"], vars(Owner)["method"]
    patches = Patches()
    assert patches.set(Owner, "static", staticmethod(lambda: 10))() == 1
    patches.set(Owner, "static", staticmethod(lambda: 20))
    patches.set(Heir, "method", lambda self: 30)
    patches.set(Heir, "new", 40)
    assert (Owner.static(), Heir().method(), Heir.new, len(patches)) == (20, 30, 40, 4)
    patches.undo()
    patches.undo()
    assert vars(Owner)["static"] is static and vars(Owner)["method"] is method
    assert "method" not in vars(Heir) and not hasattr(Heir, "new") and len(patches) == 0


def test_undo_warns_where_somebody_else_patched_since():
    original = vars(Owner)["method"]
    patches = Patches()
    patches.set(Owner, "method", lambda self: 3)
    Owner.method = lambda self: 4
    with pytest.warns(RuntimeWarning, match="'method'.*replaced after"):
        patches.undo()
    assert vars(Owner)["method"] is original


def test_a_cache_that_others_can_write_is_told_when_the_first_framework_is_enabled(framework, own_cache):
    own_cache.mkdir()
    own_cache.chmod(0o777)
    framework("one"), framework("two")
    with pytest.warns(KernelCacheWarning, match=f"chmod 700 {own_cache}.*kernels stay in memory") as told:
        gsb.enable("one")
        gsb.enable("two")
    assert len(told) == 1 and registry.enabled_frameworks() == ("one", "two")
    gsb.disable()
    own_cache.chmod(0o700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gsb.enable("one")
