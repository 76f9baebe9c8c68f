"""The compiler's own face, called by itself: transformed and scheduled programs compute what NumPy does, and what is
wrong is refused in words."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import scipy.sparse

from gnn_sparse_backend.compiler import (
    FormatRewriteRule,
    Program,
    ProgramBuilder,
    StageIError,
    compile_program,
    decompose_format,
    ell_rule,
    interpret,
    sparse_fuse,
    sparse_reorder,
)
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule

MATRIX = scipy.sparse.random(7, 5, 0.4, "csr", np.float32, np.random.default_rng(0))
MATRIX.data[:] = np.random.default_rng(1).integers(-3, 4, MATRIX.nnz)
B = np.random.default_rng(2).integers(-3, 4, (5, 4)).astype(np.float32)
WIDTH = int(np.diff(MATRIX.indptr).max())


def product(init: bool = True) -> Program:
    p = ProgramBuilder("product")
    m, n, nnz = p.sizes("m", "n", "nnz")
    rows = p.dense_fixed("I", m)
    columns = p.sparse_variable("J", rows, (n, nnz), ("indptr", "indices"))
    features = p.dense_fixed("K", 4)
    a, b = p.buffer("A", (rows, columns), "float32"), p.buffer("B", (p.dense_fixed("N", n), features), "float32")
    c = p.buffer("C", (rows, features), "float32")
    with p.iterate("product", (rows, columns, features), "SRS") as (i, j, k):
        if init:
            with p.init():
                c[i, k] = 0.0
        c[i, k] = c[i, k] + a[i, j] * b[j, k]
    return p.finish()


def arguments(program: Program) -> dict[str, object]:
    known = {"m": 7, "n": 5, "nnz": MATRIX.nnz, "indptr": MATRIX.indptr, "indices": MATRIX.indices, "A": MATRIX.data}
    ell = np.full((7, WIDTH), -1, np.int32)
    for row, (begin, end) in enumerate(zip(MATRIX.indptr, MATRIX.indptr[1:])):
        ell[row, : end - begin] = MATRIX.indices[begin:end]
    known |= {"B": B, "C": np.zeros((7, 4), np.float32), "m_ell": 7, "indices_ell": ell}
    known["A_ell"] = np.zeros((7, WIDTH), np.float32)
    return {name: known[name] for name in program.parameter_names}


PROGRAMS = {
    "as it is": product,
    "decompose_format": lambda: decompose_format(product(), [ell_rule(product(), WIDTH)]),
    "sparse_reorder": lambda: sparse_reorder(product(), "product", ("I", "K", "J")),
    "sparse_fuse": lambda: sparse_fuse(product(init=False), "product", ("I", "J")),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["interpret", "cpu", "cuda"])
def test_right_calls_are_right(name, how):
    program = PROGRAMS[name]()
    given = arguments(program)
    if how == "interpret":
        found = interpret(program, given)["C"]
    else:
        schedule, found = cpu_schedule() if how == "cpu" else gpu_schedule(), given["C"]
        flat = [x.reshape(-1) if name.endswith("_ell") and np.ndim(x) else x for name, x in given.items()]
        compile_program(program, schedule, serial=how == "cuda")(*flat)
    np.testing.assert_array_equal(found, MATRIX @ B)


def test_a_rule_is_data():
    """A rule that a user makes of the parts of another one is that one."""
    rule = ell_rule(product(), WIDTH)
    parts = {each.name: getattr(rule, each.name) for each in dataclasses.fields(FormatRewriteRule)}
    made = decompose_format(product(), [FormatRewriteRule(**parts)])
    assert made.script() == decompose_format(product(), [rule]).script()


REFUSED = {
    "I": lambda: sparse_reorder(product(), "product", ("J", "I", "K")),
    "has no iteration 'nothing'; it has product": lambda: sparse_reorder(product(), "nothing", ("I", "J", "K")),
    "does not visit axis 'Q'; it visits I, J, K": lambda: sparse_fuse(product(), "product", ("I", "Q")),
    "nothing": lambda: decompose_format(
        product(), [dataclasses.replace(ell_rule(product(), WIDTH), buffers=("nothing",))]
    ),
    "outside any iteration": lambda: _stored_outside(),
    "is for a GPU, and the target is llvm: give a cuda target, or serial=True": lambda: compile_program(
        product(), gpu_schedule()
    ),
    "interpret: program 'product' has no argument for C": lambda: interpret(
        product(), {name: x for name, x in arguments(product()).items() if name != "C"}
    ),
}


def _stored_outside() -> None:
    p = ProgramBuilder("nothing")
    p.buffer("y", (p.dense_fixed("I", 3),), "float32")[0] = 1.0


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_calls_are_refused_in_words(words):
    with pytest.raises((StageIError, ValueError, TypeError), match=re.escape(words)) as caught:
        REFUSED[words]()
    assert len(str(caught.value)) > 20, caught.value
