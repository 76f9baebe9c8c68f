"""Schedules of a GPU by commands: what they compute one thread after the other, and their machine code.

`python -m tests.simt tests/tensor/scheduling/test_gpu.py` runs the CUDA source itself, thread by thread.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.evaluation import arrays_of
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc
from tests.tensor.scheduling.checks import Stage

_threads = importlib.import_module("tests.simt.driver") if os.environ.get("GSB_SIMT") == "1" else None
RNG = np.random.default_rng(7)


def whole(*shape: int, fill: float = 1.0) -> np.ndarray:
    """Small whole numbers, whose sums are exact in any order."""
    return np.where(RNG.random(shape) < fill, RNG.integers(-3, 4, shape), 0).astype(np.float32)


A = whole(13, 90, fill=0.3)
A[3] = whole(90)  # a row of more than two parts
A[5:8] = 0
X, B, U, V = whole(90), whole(90, 64), whole(13, 64), whole(90, 64)


def on_gpu(made: st.Statement, *race: str) -> st.Statement:
    """The loops called block, warp and thread on these; race: the strategy of each."""
    loops = [loop.name for loop in made.nests[0].loops]
    for unit, strategy in zip((each for each in ("block", "warp", "thread") if each in loops), race):
        made = made.parallelize(unit, unit, strategy)
    return made


def spmv() -> st.Statement:
    return st.statement("y[i] = A[i,j] * x[j]", A=st.array(A, "csr"), x=X)


def spmm() -> st.Statement:
    return st.statement("C[i,k] = A[i,j] * B[j,k]", A=st.array(A, "csr"), B=B)


def equal_parts(made: st.Statement) -> st.Statement:
    return made.fuse("i", "j", "f").pos("f", "p", "A[i,j]").split("p", "block", "p1", 256)


def spmv_by_elements() -> st.Statement:
    return on_gpu(equal_parts(spmv()).split("p1", "thread", "nz", 8), "atomics", "atomics")


def spmv_by_rows() -> st.Statement:
    """A warp to a row, whose elements its threads add up by shuffles."""
    made = spmv().split("i", "block", "warp", 4).pos("j", "p", "A[i,j]").split("p", "p0", "thread", 32)
    return on_gpu(made, "none", "none", "parallel_reduction")


def spmm_by_elements() -> st.Statement:
    """Equal parts of elements to a warp, columns to its threads, and a loop over elements between them."""
    made = equal_parts(spmm().reorder("i", "j", "k")).split("p1", "warp", "nz", 32)
    made = made.bound("k", "kb", 64).split("kb", "k0", "thread", 32)
    return on_gpu(made.reorder("block", "warp", "k0", "thread", "nz"), "atomics", "atomics", "none")


def sddmm_by_elements() -> st.Statement:
    """A warp to an element, after another, whose features its threads add up by shuffles."""
    made = st.statement("S[i,j] = A[i,j] * U[i,k] * V[j,k]", A=st.array(A, "csr"), U=U, V=V)
    made = equal_parts(made).split("p1", "warp", "nz", 32).bound("k", "kb", 64).split("kb", "k0", "thread", 32)
    return on_gpu(made, "none", "none", "parallel_reduction")


def dot() -> st.Statement:
    made = st.statement("a = x[i] * z[i]", x=X, z=X).split("i", "block", "thread", 32)
    return on_gpu(made, "atomics", "parallel_reduction")


OPERANDS = {"A": st.array(A, "csr"), "x": X, "z": X, "B": B, "U": U, "V": V}
SCHEDULES = {
    spmv_by_elements: A @ X,
    spmv_by_rows: A @ X,
    spmm_by_elements: A @ B,
    sddmm_by_elements: A * (U @ V.T),
    dot: X @ X,
}
each = pytest.mark.parametrize("make", SCHEDULES, ids=lambda make: make.__name__)


def agrees(make, kernel) -> None:
    made = make()
    names = {access.name for term in made.source.terms for access in term.accesses}
    found = made._of(kernel(made)).run(arrays_of(made.source.notation, {name: OPERANDS[name] for name in names}))
    np.testing.assert_array_equal(found.to_dense(), SCHEDULES[make])


@each
@pytest.mark.short(3)
@pytest.mark.parametrize("loops", [False, True], ids=["stage1", "stage3"])
def test_one_element_after_the_other(make, loops):
    agrees(make, lambda made: Stage(made, loops))


@each
def test_compiled_for_the_cpu(make):
    agrees(make, lambda made: made.kernel(serial=True).plan.kernel)


@pytest.mark.skipif(_threads is None, reason="for python -m tests.simt")
@each
def test_thread_by_thread(make):
    def kernel(made: st.Statement) -> Callable[..., None]:
        built = _threads.build(made.program, made.schedule)

        def run(*arguments: Any) -> None:  # it takes tensors
            built.entry(*(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arguments))

        return run

    agrees(make, kernel)


@needs_nvcc
@each
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code_without_spills(make, arch):
    check_machine_code(make().cuda(arch), arch)


@pytest.mark.short(2)
@pytest.mark.parametrize("make, atomics", [(spmv_by_rows, 0), (sddmm_by_elements, 0), (dot, 1)])
def test_a_warp_adds_up_by_shuffles(make, atomics):
    """Five halvings after all have come, in registers; the first thread of the warp adds what comes out."""
    kernel = make().cuda("sm_90").split('extern "C"')[-1]
    assert kernel.count("__shfl_down_sync(") == 5 and kernel.count("warp_sync();") == 1
    assert kernel.index("warp_sync();") < kernel.index("__shfl_down_sync(")
    assert kernel.count("atomic_add(") == atomics and "__shared__" not in kernel and "Parts_ptr[1]" in kernel


def test_what_is_refused():
    rows = spmv().split("i", "block", "warp", 4).pos("j", "p", "A[i,j]").split("p", "p0", "thread", 16)
    with pytest.raises(
        st.ScheduleError, match="32 threads, a warp, add up by shuffles, and thread has 16; split it by"
    ):
        on_gpu(rows, "none", "none", "parallel_reduction")
    with pytest.raises(st.ScheduleError, match="each block of a GPU adds by 'atomics'"):
        equal_parts(spmv()).parallelize("block", "block", "parallel_reduction")
    with pytest.raises(st.ScheduleError, match="a loop on thread is outside of workspaces; reorder the loops"):
        made = spmm().reorder("i", "j", "k").precompute("A[i,j] * B[j,k]", "k", "kw", "w").bound("k", "kb", 64)
        made = made.split("kb", "k0", "t", 32).bound("kw", "kv", 64)
        made.split("i", "block", "i1", 4).parallelize("block", "block").parallelize("t", "thread")
