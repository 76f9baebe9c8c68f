"""Kernels on disk stay within a bound, and those go that were not used for longest, while other processes work."""

from __future__ import annotations

import os
import shutil
import threading
import time

import pytest

from gnn_sparse_backend.compiler.cache import DiskCache, KernelKey, KernelStore, bound
from gnn_sparse_backend.compiler.cache.bound import Usage
from gnn_sparse_backend.compiler.cache.built import Built
from gnn_sparse_backend.compiler.packs.toolchain import toolchain
from tests.compiler.cache.helpers import PLAN, PROGRAM, TARGET, CopyBuild, assert_scales, get, key_of, load

DAY = 86400.0
PROGRAMS = [f"program {number}" for number in range(8)]


@pytest.fixture
def of_one(build, tmp_path) -> int:
    """The bytes that one entry takes."""
    get(KernelStore(DiskCache(tmp_path / "one"), load), build)
    build.calls = 0
    return Usage.of(tmp_path / "one").bytes


@pytest.fixture
def set_bound(monkeypatch):
    return lambda count: monkeypatch.setenv("GSB_CACHE_BYTES", str(int(count)))


def used_before(root, program: str, seconds: float) -> None:
    """The entry of a program was last used so long ago."""
    then = time.time() - seconds
    os.utime(root / key_of(program).digest, (then, then))


def there(root) -> list[str]:
    return [program for program in PROGRAMS if (root / key_of(program).digest).exists()]


def test_entries_not_used_for_longest_go_where_there_is_no_room(root, new_store, build, of_one, set_bound):
    set_bound(20 * of_one)
    store = new_store()
    for number, program in enumerate(PROGRAMS):
        get(store, build, program)
        used_before(root, program, 1000 - number)
    assert there(root) == PROGRAMS, "there is room"
    get(new_store(), build, PROGRAMS[0])  # as another process, from disk
    assert build.calls == len(PROGRAMS)
    set_bound(4.5 * of_one)
    done = DiskCache(root).prune()
    assert there(root) == [PROGRAMS[0], *PROGRAMS[-3:]], "what was used now stays, the oldest are gone"
    assert (done.outdated, done.oldest, len(done.left.entries)) == (0, 4, 4)
    assert done.left.bytes == Usage.of(root).bytes <= 4.5 * of_one and done.freed == 4 * of_one
    assert_scales(get(new_store(), build, PROGRAMS[1]))  # compiled again
    assert DiskCache(root).verify() == []


def test_a_process_makes_room_while_it_writes(root, new_store, build, of_one, set_bound):
    set_bound(3 * of_one)
    store = new_store()
    kernels = [get(store, build, program) for program in PROGRAMS]
    for kernel in kernels:
        assert_scales(kernel)  # those that are gone from disk, too
    assert Usage.of(root).bytes <= 4 * of_one and PROGRAMS[-1] in there(root)
    assert store.stats().evicted >= 4 and store.stats().compiles == len(PROGRAMS)


def test_nothing_but_the_last_is_kept_within_no_bytes(root, new_store, build, set_bound):
    set_bound(0)
    for program in PROGRAMS[:3]:
        assert_scales(get(new_store(), build, program))
    assert len(there(root)) <= 1
    assert DiskCache(root).prune().left.bytes == 0 and there(root) == []


def test_a_bound_that_is_no_number_is_told(root, new_store, build, monkeypatch):
    monkeypatch.setenv("GSB_CACHE_BYTES", "much")
    with pytest.raises(ValueError, match="GSB_CACHE_BYTES must be a number of bytes.*got 'much'"):
        get(new_store(), build)


def test_other_versions_go_when_nobody_used_them_for_a_month_or_when_asked(root, libraries, new_store, build, tmp_path):
    others = [KernelKey(PROGRAM, PLAN, TARGET, f"{n}", toolchain={**toolchain(), "tvm": f"0.{n}"}) for n in range(3)]
    for other in others:
        (tmp_path / other.symbol).mkdir()
        name = CopyBuild(libraries[2.0])(tmp_path / other.symbol)
        DiskCache(root).store(other, Built.collect(tmp_path / other.symbol, name), "scale", 0.1)
    get(new_store(), build, PROGRAMS[0])
    long_ago = time.time() - (bound.UNUSED_DAYS + 1) * DAY
    os.utime(root / others[0].digest, (long_ago, long_ago))
    used_before(root, PROGRAMS[0], 365 * DAY)
    os.utime(root / ".locks" / bound.LOCK, (long_ago, long_ago))
    get(new_store(), build, PROGRAMS[1])  # the first kernel that a process keeps
    assert [(root / other.digest).exists() for other in others] == [False, True, True]
    assert there(root) == PROGRAMS[:2], "this version's own stays, whatever its age"
    done = DiskCache(root).prune()
    assert (done.outdated, done.oldest) == (2, 0) and there(root) == PROGRAMS[:2]


def test_processes_look_one_at_a_time_and_not_too_often(root, new_store, build, calls_to):
    looks = calls_to(bound, "prune")
    get(new_store(), build, PROGRAMS[0])
    get(new_store(), build, PROGRAMS[1])
    assert len(looks) == 1, "the second process sees that one has looked"
    from gnn_sparse_backend.deferred import filelock

    with filelock.FileLock(root / ".locks" / bound.LOCK):
        assert DiskCache(root).prune(0) is None and len(there(root)) == 2


def test_a_reader_finds_all_of_an_entry_or_none_while_another_prunes(root, new_store, build):
    stop, failures = threading.Event(), []

    def prune() -> None:
        while not stop.is_set():
            DiskCache(root).prune(0)

    pruning = threading.Thread(target=prune)
    pruning.start()
    try:
        for _ in range(5):
            for program in PROGRAMS:
                kernel = get(new_store(), build, program)
                assert_scales(kernel)
    except Exception as error:  # told below, when the thread has ended
        failures.append(error)
    finally:
        stop.set()
        pruning.join()
    assert not failures and DiskCache(root).verify() == []


def test_a_root_that_cannot_be_pruned_is_none(root, tmp_path):
    assert DiskCache(root).prune().left.entries == ()
    shutil.rmtree(root, ignore_errors=True)
    assert Usage.of(root).bytes == 0
