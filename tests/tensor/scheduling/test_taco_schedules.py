"""TACO's own tests of schedules, said in our commands: what is computed is what NumPy computes, or the refusal says why
(docs/testing/taco-schedules.md)."""

from __future__ import annotations

import os

import numpy as np
import pytest

from gnn_sparse_backend import tensor as st
from tests.tensor.scheduling.checks import apply, check
from tests.tensor.scheduling.taco_cases import SCHEDULING, Port
from tests.tensor.scheduling.taco_evaluations import EVALUATIONS
from tests.tensor.scheduling.taco_transformations import TRANSFORMATIONS, WORKSPACES
from tests.tensor.scheduling.taco_values import values

PORTS = (*SCHEDULING, *TRANSFORMATIONS, *WORKSPACES, *EVALUATIONS)
RUN = [port for port in PORTS if not port.refused]
REFUSED = [port for port in PORTS if port.refused]


def scheduled(port: Port):
    """(the statement with all of the commands, the operands)."""
    made, given = port.case.statement()
    for command in port.commands:
        made = apply(made, command)
    return made, given


@pytest.mark.short(40)
@pytest.mark.parametrize("port", RUN, ids=lambda port: port.test)
def test_equal(port):
    scheduled(port)  # every command is legal
    check(port.case)


@pytest.mark.slow
@pytest.mark.parametrize("port", RUN, ids=lambda port: port.test)
def test_equal_compiled(port):
    check(port.case, ("stage3", "kernel"))


@pytest.mark.short(2)
@pytest.mark.parametrize("port", [port for port in RUN if port.on_gpu], ids=lambda port: port.test)
def test_cuda_source(port):
    made, _ = scheduled(port)
    source = made.cuda("sm_90")
    assert "blockIdx.x" in source and "threadIdx" in source


@pytest.mark.parametrize("port", REFUSED, ids=lambda port: port.test)
def test_refused(port):
    """By the last command, or where there is none by the statement."""
    if not port.commands:
        with pytest.raises(st.ScheduleError, match=port.refused):
            port.case.statement()
        return
    made, _ = port.case.statement()
    for command in port.commands[:-1]:
        made = apply(made, command)
    with pytest.raises(st.ScheduleError, match=port.refused):
        apply(made, port.commands[-1])


@pytest.mark.parametrize("test", ["scheduling_eval.indexVarSplit", "indexVarSplit", "indexVarReorder"])
def test_an_index_is_no_number(test):
    with pytest.raises(st.NotationError, match="i is not given"):
        st.statement("a[i,j] = B[i,j] * (4 * i + j)", B=st.array(np.eye(4), "csr"))


def test_merge_strategies_are_no_command():
    made, _ = SCHEDULING[0].case.statement()
    assert not hasattr(made, "mergeby")


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("GSB_TACO"), reason="GSB_TACO is not set: name the folder in which TACO was built"
)
@pytest.mark.parametrize("port", {port.expression: port for port in RUN}.values(), ids=lambda port: port.expression)
def test_taco_computes_the_same(port):
    np.testing.assert_array_equal(values(port.case), port.case.expected())
