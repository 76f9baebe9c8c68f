"""Integers are divided as Python divides them, and code grows with the number of divisions alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from gnn_sparse_backend.compiler.codegen import build_jit, build_shared, generate_assembly, host_target, load


def division(dtype: str, again: int = 0):
    """``quotients = a // b`` and ``rest = a % b``, or of ``a // b % b`` taken ``again`` times."""
    with IRBuilder() as ib, T.prim_func(s_tir=True):
        T.func_name("divide")
        T.func_attr({"tirx.noalias": True})
        n = T.arg("n", T.int32())
        names = ("a", "b", "quotients", "rest")
        a, b, quotients, rest = (T.arg(name, T.buffer((n,), dtype, layout=None)) for name in names)
        with T.serial(0, n) as i:
            IRBuilder.name("i", i)
            value = a[i]
            for _ in range(again):
                value = value // b[i] % b[i]
            T.buffer_store(quotients, value // b[i], [i])
            T.buffer_store(rest, value % b[i], [i])
    return ib.get()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a file"])
def test_quotients_round_down_and_rests_have_the_divisors_sign(dtype, kept, tmp_path):
    ends = np.iinfo(dtype)
    numbers = [-7, -6, -1, 0, 1, 5, 6, 7, ends.min, ends.max]
    pairs = [(a, b) for a, b in itertools.product(numbers, numbers) if b and (a, b) != (ends.min, -1)]
    a, b = (np.array(column, dtype) for column in zip(*pairs))
    quotients, rest = np.empty_like(a), np.empty_like(a)
    function = division(dtype)
    loaded = load(build_shared(function, host_target(), tmp_path)) if kept else build_jit(function, host_target())
    loaded["divide"](len(a), a, b, quotients, rest)
    assert quotients.tolist() == [x // y for x, y in pairs]
    assert rest.tolist() == [x % y for x, y in pairs]


def test_code_of_divisions_of_quotients_is_linear():
    once, often = (generate_assembly(division("int64", again), host_target()).count("idiv") for again in (1, 8))
    assert 0 < often <= 8 * once
