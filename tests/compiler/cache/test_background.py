"""Kernels that are compiled in the background: who waits for them, who does not, and what becomes of failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler import BuildError, compile_program, cpu_schedule
from gnn_sparse_backend.compiler.cache import background
from gnn_sparse_backend.compiler.cache.background import BACKGROUND, PendingKernel, for_framework, wait_for_kernels
from gnn_sparse_backend.compiler.codegen.elsewhere import Workers
from gnn_sparse_backend.compiler.library.products import csr_spmm
from tests.compiler.cache.helpers import CopyBuild, assert_scales, get

PATIENCE = 120.0


class FromProcess(CopyBuild):
    """Leaves the number of the process that it runs in beside the library, after a while."""

    def __init__(self, library, note: Path, seconds: float = 0.0):
        super().__init__(library)
        self.note, self.seconds = note, seconds

    def __call__(self, folder):
        time.sleep(self.seconds)
        self.note.write_text(str(os.getpid()))
        return super().__call__(folder)


class Fails(CopyBuild):
    def __call__(self, folder):
        raise BuildError("main", "no such instruction", "the text")


class Dies(CopyBuild):
    def __call__(self, folder):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(autouse=True)
def in_background(monkeypatch):
    monkeypatch.setattr(background, "in_background", lambda: True)
    yield
    BACKGROUND.wait(PATIENCE)
    BACKGROUND._failed.clear()
    BACKGROUND.busy = False


@contextmanager
def pending():
    """The block asks for a framework, and is told that a kernel is not there, which is then started."""
    with pytest.raises(PendingKernel) as found, for_framework():
        yield
    if found.value.make is not None:
        BACKGROUND.start(found.value.key, found.value.make)


def test_a_framework_does_not_wait_and_another_process_compiles(libraries, new_store, tmp_path):
    store, build = new_store(), FromProcess(libraries[2.0], tmp_path / "note", 0.3)
    with pending():
        get(store, build)
    with pending():  # again while it is being compiled
        get(store, build)
    wait_for_kernels(PATIENCE)
    with for_framework():
        kernel = get(store, build)
    assert_scales(kernel)
    assert int((tmp_path / "note").read_text()) != os.getpid()
    assert store.stats().compiles == 1 and kernel.origin == "compiled"
    with for_framework():  # what is on disk was compiled before
        assert get(new_store(), build).origin == "disk"


def test_whoever_else_asks_waits(libraries, new_store, tmp_path):
    store, build = new_store(), FromProcess(libraries[2.0], tmp_path / "note", 0.3)
    with pending():
        get(store, build)
    assert_scales(get(store, build))
    assert store.stats().compiles == 1
    with for_framework(), for_framework(False):
        assert_scales(get(store, FromProcess(libraries[2.0], tmp_path / "own"), "another"))
    assert int((tmp_path / "own").read_text()) == os.getpid()


def test_what_cannot_be_sent_is_built_here(libraries, new_store):
    store, copy, threads = new_store(), CopyBuild(libraries[2.0]), []

    def build(folder):
        threads.append(threading.current_thread())
        return copy(folder)

    with pending():
        get(store, build)
    wait_for_kernels(PATIENCE)
    with for_framework():
        assert_scales(get(store, build))
    assert threads != [threading.current_thread()] and len(threads) == 1


@pytest.mark.parametrize("kind, words", [(Fails, "no such instruction"), (Dies, "ended with exit status -9")])
def test_a_failure_is_raised_once_and_the_framework_goes_on(kind, words, libraries, new_store):
    store, build = new_store(), kind(libraries[2.0])
    with pending():
        get(store, build)
    with pytest.raises(BuildError, match=words):
        wait_for_kernels(PATIENCE)
    wait_for_kernels(PATIENCE)
    with pytest.raises(PendingKernel) as found, for_framework():
        get(store, build)
    assert words in str(found.value.error) and found.value.make is None
    if kind is Fails:  # whoever waits is told himself
        with pytest.raises(BuildError, match=words):
            get(store, build)


def test_waiting_has_an_end(libraries, new_store, tmp_path):
    with pending():
        get(new_store(), FromProcess(libraries[2.0], tmp_path / "note", 0.5))
    with pytest.raises(TimeoutError, match=r"1 calls wait for kernels after 0\.01 s"):
        wait_for_kernels(0.01)
    wait_for_kernels(PATIENCE)


def test_a_program_and_its_schedule_are_the_same_elsewhere(tmp_path, monkeypatch):
    """The code that another process makes of what was sent is that of this process, to the byte."""
    from gnn_sparse_backend.compiler import compile as compiling

    made = []
    monkeypatch.setattr(compiling, "get_kernel", lambda *args, **named: made.append(args[3]))
    compile_program(csr_spmm(16), cpu_schedule())
    workers, folders = Workers(), [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
    try:
        libraries = [Path(made[0](folders[0])).name, Path(workers.build(made[0], folders[1])).name]
    finally:
        workers.stop()
    assert (folders[0] / libraries[0]).read_bytes() == (folders[1] / libraries[1]).read_bytes()


@pytest.mark.parametrize("how", ["returns", "is forked"])
def test_a_process_that_ends_waits_for_nobody(how, libraries, tmp_path):
    command = [sys.executable, "-m", "tests.compiler.cache.ending", how, str(libraries[2.0]), str(tmp_path)]
    errors = tmp_path / "errors"  # a file: the process that compiles has it open, too
    with errors.open("w") as file:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, errors.read_text()) == (0, "done\n", "")
    builder = int((tmp_path / "builder").read_text())
    for _ in range(100):
        if not Path(f"/proc/{builder}").exists():
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the process that compiled is still there")
