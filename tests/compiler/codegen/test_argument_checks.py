"""What a compiled function for the CPU accepts and refuses, one wrong property at a time."""

import numpy as np
import pytest
import torch
from tvm.script import tirx as T

from gnn_sparse_backend.compiler.codegen import build_jit, host_target
from gnn_sparse_backend.compiler.codegen.cpu.argument_checks import describe_parameters


@T.prim_func(s_tir=True)
def fill(
    m: T.int64,
    n: T.int64,
    pointers_handle: T.handle,
    mask_handle: T.handle,
    half_handle: T.handle,
    brain_handle: T.handle,
    out_handle: T.handle,
):
    pointers = T.match_buffer(pointers_handle, (m + T.int64(1),), "int64", align=8)
    mask = T.match_buffer(mask_handle, (n,), "bool", align=1)
    half = T.match_buffer(half_handle, (n, T.int64(2)), "float16", align=2)
    brain = T.match_buffer(brain_handle, (T.int64(3),), "bfloat16", align=2)
    out = T.match_buffer(out_handle, (m * T.int64(2), n), "float32", align=4)
    for i, j in T.grid(m * T.int64(2), n):
        with T.sblock("fill"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = T.float32(1)


SIGNATURE = "fill(m: int64, n: int64, pointers: Tensor("


@pytest.fixture(scope="module")
def compiled():
    return build_jit(fill, host_target())["fill"]


def arguments(m=3, n=4):
    return {
        "m": m,
        "n": n,
        "pointers": torch.zeros(m + 1, dtype=torch.int64),
        "mask": torch.zeros(n, dtype=torch.bool),
        "half": torch.zeros(n, 2, dtype=torch.float16),
        "brain": torch.zeros(3, dtype=torch.bfloat16),
        "out": torch.zeros(2 * m, n),
    }


FITTING = {
    "plain": {},
    "a view": {"out": torch.zeros(8, 4)[1:7]},
    "numpy": {"pointers": np.zeros(4, np.int64), "mask": np.zeros(4, bool), "half": np.zeros((4, 2), np.float16)},
    "bool for an integer": {"m": True, "pointers": torch.zeros(2, dtype=torch.int64), "out": torch.zeros(2, 4)},
    "a stride along a length of 1": {
        "n": 1,
        "mask": torch.zeros(9, dtype=torch.bool)[::9],
        "half": torch.zeros(1, 2).half(),
        "out": torch.zeros(6, 1).as_strided((6, 1), (1, 5)),
    },
    "no elements": {
        "n": 0,
        "mask": torch.zeros(0, dtype=torch.bool),
        "half": torch.zeros(0, 2).half(),
        "out": torch.zeros(6, 0),
    },
    "no elements, strided": {
        "n": 0,
        "mask": torch.zeros(0, dtype=torch.bool),
        "half": torch.zeros(2, 0).half().T,
        "out": torch.zeros(6, 0),
    },
}


@pytest.mark.parametrize("changes", FITTING.values(), ids=FITTING)
def test_what_fits_runs(compiled, changes):
    given = arguments() | changes
    compiled(*given.values())
    assert bool((given["out"] == 1).all())


REFUSED = {
    "float for an integer": ("m", 3.0, TypeError, "Mismatched type of argument #0"),
    "tensor for an integer": ("n", torch.zeros(4), TypeError, "Mismatched type of argument #1"),
    "none for a tensor": ("pointers", None, TypeError, "type, ndim, dtype or device of argument #2"),
    "integer for a tensor": ("mask", 4, TypeError, "argument #3"),
    "text for a tensor": ("half", "x", TypeError, "argument #4"),
    "narrower": ("pointers", torch.zeros(4, dtype=torch.int32), TypeError, "argument #2"),
    "unsigned for bool": ("mask", torch.zeros(4, dtype=torch.uint8), TypeError, "argument #3"),
    "bfloat16 for float16": ("half", torch.zeros(4, 2, dtype=torch.bfloat16), TypeError, "argument #4"),
    "float16 for bfloat16": ("brain", torch.zeros(3, dtype=torch.float16), TypeError, "argument #5"),
    "complex": ("out", torch.zeros(6, 4, dtype=torch.complex64), TypeError, "argument #6"),
    "a dimension more": ("pointers", torch.zeros(4, 1, dtype=torch.int64), TypeError, "argument #2"),
    "a dimension less": ("half", torch.zeros(8).half(), TypeError, "argument #4"),
    "no dimension": ("brain", torch.zeros((), dtype=torch.bfloat16), TypeError, "argument #5"),
    "offset length": ("pointers", torch.zeros(3, dtype=torch.int64), ValueError, "shape or strides of argument #2"),
    "length": ("mask", torch.zeros(5, dtype=torch.bool), ValueError, "argument #3"),
    "first length": ("half", torch.zeros(3, 2).half(), ValueError, "argument #4"),
    "constant length": ("half", torch.zeros(4, 3).half(), ValueError, "argument #4"),
    "only length": ("brain", torch.zeros(2, dtype=torch.bfloat16), ValueError, "argument #5"),
    "scaled length": ("out", torch.zeros(3, 4), ValueError, "argument #6"),
    "negative length": ("m", -3, ValueError, "argument #2"),
    "transposed": ("out", torch.zeros(4, 6).T, ValueError, "shape or strides of argument #6"),
    "padded rows": ("out", torch.zeros(6, 5)[:, :4], ValueError, "argument #6"),
    "every other element": ("mask", torch.zeros(8, dtype=torch.bool)[::2], ValueError, "argument #3"),
    "expanded": ("out", torch.zeros(1, 4).expand(6, 4), ValueError, "argument #6"),
}


@pytest.mark.parametrize("name, value, error, message", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(compiled, name, value, error, message):
    given = arguments() | {name: value}
    with pytest.raises(error, match=message) as failure:
        compiled(*given.values())
    assert SIGNATURE in str(failure.value)
    assert not bool(given["out"].any())


@pytest.mark.parametrize("count", [0, 6, 8])
def test_the_number_of_arguments(compiled, count):
    given = [*arguments().values(), 1][:count]
    with pytest.raises(TypeError, match="Expected 7 arguments when calling"):
        compiled(*given)


@T.prim_func(s_tir=True)
def ones(m: T.int64, n: T.int64, out_handle: T.handle):
    out = T.match_buffer(out_handle, (m * n,), "float32", align=4)
    for i in range(m * n):
        with T.sblock("ones"):
            vi = T.axis.spatial(m * n, i)
            out[vi] = T.float32(1)


def test_lengths_that_no_table_describes_keep_their_checks():
    compiled = build_jit(ones, host_target())["ones"]
    out = torch.zeros(6)
    compiled(2, 3, out)
    assert bool((out == 1).all())
    with pytest.raises(ValueError, match=r"(?s)Invalid out\.shape\[0\] on argument #2 when calling.*expected m \* n"):
        compiled(2, 4, out)


@T.prim_func(s_tir=True)
def fill_rows(m: T.int64, x_handle: T.handle):
    stride = T.int64()
    x = T.match_buffer(x_handle, (m, T.int64(4)), "float32", strides=(stride, T.int64(1)), align=4)
    for i, j in T.grid(m, T.int64(4)):
        with T.sblock("fill_rows"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = T.float32(1)


def test_rows_with_a_stride_of_their_own():
    assert "gsb.parameters" in describe_parameters(fill_rows).attrs
    compiled = build_jit(fill_rows, host_target())["fill_rows"]
    for x in (
        torch.zeros(3, 4),
        torch.zeros(3, 6)[:, 1:5],
        torch.zeros(1, 4).expand(3, 4),
        torch.zeros(0, 4),
        torch.zeros(6, 4)[::2],
    ):
        compiled(x.shape[0], x)
        assert bool((x == 1).all())
    for x in (torch.zeros(4, 3).T, torch.zeros(3, 8)[:, ::2], torch.zeros(2, 4), torch.zeros(3, 5)):
        with pytest.raises(ValueError, match="shape or strides of argument #1"):
            compiled(3, x)
        assert not bool(x.any())
