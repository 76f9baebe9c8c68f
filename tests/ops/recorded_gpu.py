"""A stand-in for a GPU that is told every kernel and computes zeros: what the dispatch launches there, at the cost of
planning alone.

As with `serial_gpu` the boundary alone is replaced. Nothing is compiled: that is for tests of the code of these
kernels.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gnn_sparse_backend.compiler.language.program import Program, Store, walk_iterations
from gnn_sparse_backend.compiler.schedules.sequence import Schedule
from tests.ops.serial_gpu import stand_in

ARCH = "recorded"
LAUNCHED: dict[tuple[str, str], tuple[Program, Schedule]] = {}
"""What was launched since the test began, by text; kernels are kept from test to test."""


def build(program: Program, schedule: Schedule, arch: str):
    assert arch == ARCH, arch
    key = program.script(), repr(schedule)
    stored = {
        statement.buffer.name
        for it in walk_iterations(program.iterations)
        for statement in (*it.init, *it.body)
        if isinstance(statement, Store)
    }
    names = program.parameter_names

    def launch(*arguments):
        LAUNCHED[key] = program, schedule
        for name, argument in zip(names, arguments, strict=True):
            if name in stored:
                argument.zero_()  # numbers of edges among them, which index other arrays

    return SimpleNamespace(entry=launch)


@pytest.fixture
def recorded_gpu(monkeypatch):
    """Tensors of the CPU take the way of tensors on a GPU, and get zeros. Gives the programs and schedules launched
    meanwhile.
    """
    LAUNCHED.clear()
    stand_in(monkeypatch, ARCH, build)
    return LAUNCHED
