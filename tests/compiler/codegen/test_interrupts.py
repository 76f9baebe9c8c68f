"""Ctrl-C while a kernel is compiled: a KeyboardInterrupt, and not an error of the compiler's."""

import os
import signal
import threading

import pytest

from gnn_sparse_backend.compiler import compile as compiling
from gnn_sparse_backend.compiler.codegen.interrupts import interrupts_held
from gnn_sparse_backend.compiler.library.reductions import csr_row_sum
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule


@pytest.fixture(autouse=True)
def handler():
    """A shell that starts the tests in the background has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # Python looks for signals between its instructions
        pass


def test_it_waits_until_the_block_is_done(handler):
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts_held():
            press()
            done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is handler


def test_it_wins_over_what_it_made_of_the_block(handler):
    with pytest.raises(KeyboardInterrupt) as raised:
        with interrupts_held():
            press()
            raise RuntimeError("a pass was cut short")
    assert isinstance(raised.value.__context__, RuntimeError) and signal.getsignal(signal.SIGINT) is handler


def test_errors_without_it_come_out_as_they_are():
    with pytest.raises(RuntimeError, match="a pass"):
        with interrupts_held():
            raise RuntimeError("a pass refused")


def test_other_threads_and_ignored_signals_are_left_alone():
    seen = []

    def inside():
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inside()
    assert seen[1] == signal.SIG_IGN


def test_a_compilation_is_interrupted_as_such(monkeypatch, tmp_path):
    """Not looked up in any cache."""
    own = compiling.stage3

    def stage3(*args):
        press()
        return own(*args)

    monkeypatch.setattr(compiling, "get_kernel", lambda text, plan, key, build, **names: build(tmp_path))
    monkeypatch.setattr(compiling, "stage3", stage3)
    with pytest.raises(KeyboardInterrupt):
        compiling.compile_program(csr_row_sum(), cpu_schedule())
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]  # it was not cut short
    monkeypatch.setattr(compiling, "stage3", own)
    assert compiling.compile_program(csr_row_sum(), cpu_schedule()) in tmp_path.iterdir()
