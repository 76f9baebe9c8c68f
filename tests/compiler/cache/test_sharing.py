"""Threads, forks and processes: one compile, the same kernel for all, and nobody waits for the dead."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from gnn_sparse_backend.compiler.cache import DiskCache, KernelCacheWarning, KernelStore
from gnn_sparse_backend.compiler.cache.built import Built
from gnn_sparse_backend.compiler.packs.toolchain import toolchain
from tests.compiler.cache.helpers import CopyBuild, assert_scales, finish_worker, get, key_of, load, start_worker


def wait_for(condition, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the worker did not get ready"
        time.sleep(0.01)


def test_second_request_is_a_hit(new_store, build):
    store = new_store()
    assert get(store, build) is get(store, build)
    assert (store.stats().hits, store.stats().compiles, build.calls) == (1, 1, 1)


def test_different_plans_are_different_kernels(libraries, new_store):
    store = new_store()
    kernels = {factor: store.get("p", f"times {factor}", "llvm", CopyBuild(libraries[factor])) for factor in (2.0, 3.0)}
    for factor, kernel in kernels.items():
        assert_scales(kernel, factor)


def test_target_object_stands_for_its_key(new_store, build):
    from gnn_sparse_backend.compiler.codegen import host_target

    store = new_store()
    kernel = store.get("p", "q", host_target(), build)
    assert store.get("p", "q", host_target().key, build) is kernel
    assert kernel.target == host_target().key


def test_threads_compile_once(new_store, libraries):
    copy, store, started = CopyBuild(libraries[2.0]), new_store(), threading.Barrier(4)
    found = []

    def slow(folder):
        time.sleep(0.2)
        return copy(folder)

    def work():
        started.wait()
        found.append(get(store, slow))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert copy.calls == 1
    assert len(found) == 4 and len(set(map(id, found))) == 1
    assert (store.stats().compiles, store.stats().hits) == (1, 3)


def test_threads_compile_different_kernels_side_by_side(new_store, libraries):
    store, both = new_store(), threading.Barrier(2)

    def meet(folder):
        both.wait(30)  # breaks if one build waits for the other
        return CopyBuild(libraries[2.0])(folder)

    threads = [threading.Thread(target=get, args=(store, meet, program)) for program in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.stats().compiles == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks with threads, which is the point
def test_fork_during_a_compile_does_not_hang(new_store, libraries):
    """The child has no thread that would finish the parent's compile; it compiles by itself."""
    store, building, finish = new_store(lock_timeout=0.2), threading.Event(), threading.Event()

    def slow(folder):
        building.set()
        finish.wait(60)
        return CopyBuild(libraries[2.0])(folder)

    thread = threading.Thread(target=get, args=(store, slow))
    thread.start()
    building.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            with pytest.warns(KernelCacheWarning, match="has held"):  # the file lock is the parent's, and alive
                assert_scales(get(store, CopyBuild(libraries[2.0])))
            assert_scales(get(store, CopyBuild(libraries[2.0]), "another program"))
            code = 0 if store.stats().compiles == 2 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    finish.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(status) == 0
    kernel = get(store, slow)
    assert_scales(kernel)
    # The child was first: its entry is the one that stays, and the parent uses it.
    assert store.stats().lost_races == 1 and store.disk.verify() == []


def test_forked_child_keeps_its_parents_kernels(new_store, build):
    store = new_store()
    kernel = get(store, build)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            again = get(store, build)
            assert_scales(again)
            code = 0 if again is kernel else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_processes_compile_once(root, libraries, tmp_path):
    log, start = tmp_path / "log", tmp_path / "start"
    workers = [
        start_worker(
            "get_kernel", root=str(root), library=str(libraries[2.0]), log=str(log), start=str(start), seconds=0.5
        )
        for _ in range(4)
    ]
    wait_for(lambda: len(list(tmp_path.glob("start.*"))) == 4)
    start.touch()
    reports = [finish_worker(worker) for worker in workers]
    assert len(log.read_text().split()) == 1
    assert sorted(report["origin"] for report in reports) == ["compiled", "disk", "disk", "disk"]
    assert sum(report["compiles"] for report in reports) == 1
    assert len(DiskCache(root).entries()) == 1 and DiskCache(root).verify() == []


def test_loser_of_a_race_uses_the_winners_entry(root, libraries, tmp_path):
    cache = DiskCache(root)
    built = {}
    for who, factor in (("winner", 2.0), ("loser", 3.0)):
        (tmp_path / who).mkdir()
        built[who] = Built.collect(tmp_path / who, CopyBuild(libraries[factor])(tmp_path / who))
    cache.store(key_of(), built["winner"], "winner", 0.1)
    entry = cache.store(key_of(), built["loser"], "loser", 0.1)
    assert entry.manifest.name == "winner"
    assert_scales(load(entry.library)["main"], 2.0)
    assert (cache.stats["stores"], cache.stats["lost_races"]) == (1, 1)
    assert list(root.glob(".staging-*")) == []


def test_kill_before_the_rename_leaves_nothing_visible(root, libraries, new_store, build, tmp_path):
    worker = start_worker("die_while_writing", root=str(root), library=str(libraries[2.0]), scratch=str(tmp_path))
    worker.communicate(timeout=120)
    assert worker.returncode == -signal.SIGKILL
    [staging] = root.glob(".staging-*")
    assert (staging / "kernel.so").is_file()

    assert DiskCache(root).entries() == [] and DiskCache(root).verify() == []
    patient = new_store(lock_timeout=600)
    assert get(patient, build).origin == "compiled" and patient.stats().lock_timeouts == 0  # its lock died with it
    assert staging.exists()  # it might still be at work

    os.utime(staging, (time.time() - 7200,) * 2)
    get(new_store(), build, "another program")
    assert not staging.exists()


@pytest.mark.slow
def test_holder_that_hangs_is_not_waited_for_for_ever(root, new_store, build, tmp_path):
    ready = tmp_path / "ready"
    worker = start_worker("hold_lock", root=str(root), ready=str(ready), toolchain=dict(toolchain()))
    try:
        wait_for(ready.exists)
        store = new_store(lock_timeout=0.3)
        with pytest.warns(KernelCacheWarning, match="has held .* for 0.3 s"):
            assert get(store, build).origin == "compiled"
        assert store.stats().lock_timeouts == 1

        threading.Timer(1.0, worker.kill).start()
        began = time.monotonic()
        patient = new_store(lock_timeout=60)
        assert get(patient, build, "another program").origin == "compiled"  # other keys do not wait
        with patient.disk.lock(key_of()):  # a dead holder has let go
            assert time.monotonic() - began < 30
        assert patient.stats().lock_timeouts == 0
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.slow
def test_fresh_process_loads_and_does_not_compile(own_cache):
    first, second = (finish_worker(start_worker("compile_for_real", factor=2.5)) for _ in range(2))
    assert (first["origin"], first["compiles"], first["disk_loads"]) == ("compiled", 1, 0)
    assert (second["origin"], second["compiles"], second["disk_loads"]) == ("disk", 0, 1)
    assert second["name"] == "scale" and second["program"] == "b = a * 2.5"


def test_memory_only_store_writes_nothing(libraries, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kernel = get(KernelStore(None, load), CopyBuild(libraries[2.0]))
    assert kernel.origin == "memory"
    assert list(tmp_path.iterdir()) == []
    assert_scales(kernel)
