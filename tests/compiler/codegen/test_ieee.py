"""Floating-point arithmetic means the same in stage I, in machine code and, as far as its text shows, on CUDA."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import build_jit, compile_cuda, cuda_target, generate_cuda, host_target
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import nvcc_path
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import (
    both,
    call,
    cast,
    differ,
    either,
    equal,
    is_nan,
    maximum,
    minimum,
    number,
    select,
)
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script, script
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.shared.decompose import decompose_reductions

SCHEDULES = [cpu_schedule(parallel=False), cpu_schedule(parallel=False, vectorize=False)]
NUMBERS = np.array([0.0, -0.0, 1.0, -2.5, 3.0, np.inf, -np.inf, np.nan])
PAIRS = np.array(list(itertools.product(NUMBERS, NUMBERS))).T.reshape(2, 4, 16).copy()


def flag(condition):
    """1 where the condition holds, as the number that the caller's type wants."""
    return lambda dtype: select(condition, number(1.0, dtype), number(0.0, dtype))


def three_ways(x, y):
    """The last case is that of NaN, though every real number is in one of the others."""
    return lambda dtype: select(x > y, number(1.0, dtype), select(x <= y, number(2.0, dtype), number(3.0, dtype)))


EXPRESSIONS = {
    "x - x": lambda x, y: x - x,
    "x + y - y": lambda x, y: x + y - y,
    "x + y - x": lambda x, y: x + y - x,
    "x - (x + y)": lambda x, y: x - (x + y),
    "x * 0": lambda x, y: x * 0.0,
    "0 * x": lambda x, y: 0.0 * x,
    "0 / x": lambda x, y: 0.0 / x,
    "x / 0": lambda x, y: x / 0.0,
    "x / x": lambda x, y: x / x,
    "select - x": lambda x, y: select(x > y, x, y) - x,
    "maximum": maximum,
    "minimum": minimum,
    "maximum of a number": lambda x, y: maximum(1.0, x),
    "minimum with a number": lambda x, y: minimum(x, 1.0),
    "nested maximum": lambda x, y: maximum(maximum(x, y), x),
    "x == x": lambda x, y: flag(equal(x, x)),
    "x != x": lambda x, y: flag(differ(x, x)),
    "x == y": lambda x, y: flag(equal(x, y)),
    "x != y": lambda x, y: flag(differ(x, y)),
    "x != 1": lambda x, y: flag(differ(x, 1.0)),
    "x < y": lambda x, y: flag(x < y),
    "x >= y": lambda x, y: flag(x >= y),
    "ordered": lambda x, y: flag(either(x < y, y <= x)),
    "ordered, turned": lambda x, y: flag(either(x <= y, x > y)),
    "positive or not": lambda x, y: flag(either(x > 0.0, x <= 0.0)),
    "never": lambda x, y: flag(both(x < y, y < x)),
    "equal conditions": lambda x, y: flag(equal(x < y, y < x)),
    "other conditions": lambda x, y: flag(differ(x < 0.0, y < 0.0)),
    "three ways": three_ways,
    "is_nan": lambda x, y: flag(is_nan(x)),
    "is_nan of a difference": lambda x, y: flag(is_nan(x - y)),
    "not is_nan": lambda x, y: flag(equal(is_nan(x), is_nan(y))),
    "abs": lambda x, y: call("abs", x),
}


def program_of(name: str, dtype: str):
    """Y[i, k] = expression(X[i, k], V[i, k])."""
    p = ProgramBuilder("pairs")
    (m,) = p.sizes("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", PAIRS.shape[2])
    X, V, Y = (p.buffer(n, (I, K), dtype) for n in ("X", "V", "Y"))
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("map", (K,), "S") as (k,):
            value = EXPRESSIONS[name](X[i, k], V[i, k])
            Y[i, k] = value(dtype) if callable(value) else value
    return p.finish()


def expected(program) -> np.ndarray:
    return interpret(program, {"m": PAIRS.shape[1], "X": PAIRS[0], "V": PAIRS[1], "Y": np.zeros_like(PAIRS[0])})["Y"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_machine_code_means_what_stage_one_means(name, dtype):
    program = program_of(name, dtype)
    x, v = PAIRS.astype(dtype)
    for schedule in SCHEDULES:
        y = np.full_like(x, 77)
        compile_program(program, schedule)(len(x), x, v, y)
        np.testing.assert_array_equal(y, expected(program))


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_machine_code_of_bfloat16(name):
    torch = pytest.importorskip("torch")
    program = program_of(name, "bfloat16")
    x, v = torch.tensor(PAIRS).bfloat16()
    y = torch.full_like(x, 77)
    compile_program(program, SCHEDULES[0])(len(x), x, v, y)
    np.testing.assert_array_equal(y.double().numpy(), expected(program))


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_interpreters_and_printer_agree(name):
    program = program_of(name, "float32")
    assert program_from_script(script(program)) == program
    arguments = {"m": PAIRS.shape[1], "X": PAIRS[0], "V": PAIRS[1], "Y": np.zeros_like(PAIRS[0])}
    stage2 = lower(program)
    np.testing.assert_array_equal(run_position(stage2, arguments)["Y"], expected(program))
    np.testing.assert_array_equal(run_loops(flatten(stage2), arguments)["Y"], expected(program))


def test_what_the_expressions_give_is_ieee():
    """The interpreter itself, on what the frameworks would give."""
    x, v = PAIRS
    with np.errstate(all="ignore"):
        for name, want in {
            "x - x": x - x,
            "x * 0": x * 0,
            "x == y": x == v,
            "x != y": x != v,
            "ordered": ~np.isnan(x) & ~np.isnan(v),
            "is_nan": np.isnan(x),
            "maximum": np.where(x > v, x, v),
            "minimum": np.where(x < v, x, v),
            "three ways": np.select([x > v, x <= v], [1, 2], 3),
        }.items():
            np.testing.assert_array_equal(expected(program_of(name, "float64")), np.asarray(want, float), err_msg=name)


def test_rounding_of_a_difference_is_kept():
    """(x + c) - c is how one rounds x to a multiple: TVM took it for x."""
    p = ProgramBuilder("rounded")
    (m,) = p.sizes("m")
    I = p.dense_fixed("I", m)
    X, Y = p.buffer("X", (I,), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("map", (I,), "S") as (i,):
        Y[i] = X[i] + 1e8 - 1e8
    x = np.array([0.3, 3.0, 5.0, -3.9], "float32")
    y = np.empty_like(x)
    compile_program(p.finish(), SCHEDULES[0])(4, x, y)
    np.testing.assert_array_equal(y, [0, 0, 8, 0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_nan_knows_every_nan(dtype):
    integer, digits = {"float32": ("uint32", 23), "float64": ("uint64", 52)}[dtype]
    width = 8 * np.dtype(integer).itemsize
    infinity = ((1 << (width - 1 - digits)) - 1) << digits
    largest, quiet = (1 << (width - 1)) - 1, infinity | 1 << (digits - 1)
    magnitudes = [0, 1, infinity - 1, infinity, infinity + 1, infinity | 5, quiet, largest]
    bits = np.array([m | sign << (width - 1) for m in magnitudes for sign in (0, 1)], integer)
    x = bits.view(dtype).reshape(1, 16)
    for schedule in SCHEDULES:
        y = np.full_like(x, 77)
        compile_program(program_of("is_nan", dtype), schedule)(1, x, x, y)
        np.testing.assert_array_equal(y[0], [m > infinity for m in magnitudes for _ in (0, 1)])


def test_is_nan_refuses_integers():
    with pytest.raises(StageIError, match="is_nan wants a floating-point argument, not int64"):
        is_nan(number(3))


@pytest.mark.skipif("avx2" not in host_target().features, reason="the registers looked for are AVX's")
def test_is_nan_is_computed_in_vectors():
    for schedule in SCHEDULES:
        built = build_jit(stage3(program_of("is_nan", "float32"), schedule), host_target())
        assembly = built.module.inspect_source("s")
        assert re.search(r"\tv(pcmp\w+|cmp\w+ps)\t.*%[yz]mm", assembly)


UPDATES = {
    "ignore": lambda v, acc: maximum(v, acc),
    "forget": lambda v, acc: maximum(acc, v),
    "propagate": lambda v, acc: select(either(v > acc, is_nan(v)), v, acc),
    "propagate by comparison": lambda v, acc: select(either(v > acc, differ(v, v)), v, acc),
}


def reduced(update: str, values: np.ndarray) -> float:
    """The reduction of one row, by the words of the docstring of `maximum`."""
    if update.startswith("propagate"):
        return np.max(values, initial=-np.inf)  # NumPy's maximum propagates
    if update == "forget" and len(values) and np.isnan(values[-1]):
        return np.nan
    last = max(np.flatnonzero(np.isnan(values)), default=-1)
    return np.fmax.reduce(values[last + 1 :] if update == "forget" else values, initial=-np.inf)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["vectors", "scalars"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("update", sorted(UPDATES))
def test_reductions_of_nan(update, dtype, schedule):
    """M[i, k] = max over the row of A[i, j, k], NaN and infinity anywhere in it."""
    p = ProgramBuilder("row_max")
    m, nnz = p.sizes("m", "nnz")
    I = p.dense_fixed("I", m)
    J = p.dense_variable("J", I, (m, nnz), "indptr")
    K = p.dense_fixed("K", 5)
    A, M = p.buffer("A", (I, J, K), dtype), p.buffer("M", (I, K), dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("reduce", (J, K), "RS") as (j, k):
            with p.init():
                M[i, k] = number(float("-inf"), dtype)
            M[i, k] = UPDATES[update](A[i, j, k], M[i, k])
    program = p.finish()
    assert program_from_script(script(program)) == program
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 6, 40)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype("int32")
    a = rng.choice(NUMBERS[2:], (indptr[-1], 5), p=[0.25, 0.25, 0.2, 0.1, 0.1, 0.1]).astype(dtype)
    want = np.array([[reduced(update, a[s:e, k]) for k in range(5)] for s, e in itertools.pairwise(indptr)])
    assert np.isnan(want).any() == (update != "ignore")
    got = np.zeros((40, 5), dtype)
    compile_program(program, schedule)(40, int(indptr[-1]), indptr, a, got)
    np.testing.assert_array_equal(got, want)
    arguments = {"m": 40, "nnz": int(indptr[-1]), "indptr": indptr, "A": a, "M": np.zeros((40, 5))}
    np.testing.assert_array_equal(interpret(program, arguments)["M"], want)
    np.testing.assert_array_equal(run_position(decompose_reductions()(lower(program)), arguments)["M"], want)


def test_search_where_a_comparison_with_nan_does_not_hold():
    """The other side of select looks a coordinate up: under the negation of a comparison, which TVM would invert."""
    p = ProgramBuilder("lookup")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"))
    X, Y = p.buffer("X", (I,), "float32"), p.buffer("Y", (I,), "float32")
    A = p.buffer("A", (I, J), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Y[i] = select(X[i] > 0.0, number(-1.0, "float32"), A[i, 2])
    program = p.finish()
    x = np.array([np.nan, 1, -1, np.nan], "float32")
    indptr, indices = np.array([0, 1, 2, 3, 3], "int32"), np.array([2, 2, 2], "int32")
    a, y = np.array([10, 20, 30], "float32"), np.empty(4, "float32")
    arguments = dict(zip(program.parameter_names, (4, 3, 3, indptr, indices, x, y, a)))
    want = interpret(program, arguments)["Y"]
    np.testing.assert_array_equal(want, [10, -1, 30, 0])
    for schedule in SCHEDULES:
        compile_program(program, schedule)(*arguments.values())
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["x - x", "x * 0", "maximum", "ordered", "x != x", "is_nan", "three ways"])
def test_cuda_text_keeps_the_operands(name, dtype):
    """No folding: both comparisons are there, the operands are read, and no max of CUDA's own is called."""
    source = generate_cuda(stage3(program_of(name, dtype), gpu_schedule()), "sm_90")
    kernel = source[source.index("pairs_kernel(") :]
    body = kernel[kernel.index("{") :]
    reads = {"maximum": 2, "ordered": 4, "three ways": 4}.get(name, 1)
    assert len(re.findall(r"\b[XV]_ptr\[", body)) >= reads
    assert not re.search(r"\b(f?max|min)f?\(", body)


@pytest.mark.slow
@pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")
def test_cuda_text_compiles_and_nvcc_folds_nothing():
    """In PTX the comparison of x with itself is that of NaN, and x - x is subtracted."""
    ptx = {}
    for name in ("x != x", "x - x", "ordered"):
        source = generate_cuda(stage3(program_of(name, "float32"), gpu_schedule()), "sm_90")
        ptx[name] = compile_cuda(source, cuda_target("sm_90").arch, "ptx").code.decode()
    assert re.search(r"(neu|nan|num|equ|eq)\.f32", ptx["x != x"]) and "sub" in ptx["x - x"]
    assert len(re.findall(r"set\w*\.\w+(\.\w+)?\.f32", ptx["ordered"])) >= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_conversion_to_a_narrow_type_and_back_rounds(narrow, dtype):
    """As a message is rounded that a framework would have stored; PyTorch's conversion is the oracle."""
    torch = pytest.importorskip("torch")
    p = ProgramBuilder("narrow")
    (m,) = p.sizes("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", 16)
    X, Y = p.buffer("X", (I, K), dtype), p.buffer("Y", (I, K), dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("map", (K,), "S") as (k,):
            Y[i, k] = cast(dtype, cast(narrow, X[i, k])) + 0.0
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (1000, 16), np.uint32)
    bits[:200] &= 0xFFFF8000  # ties
    bits[0, :8] = 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F7FFFFF, 0x7F800000, 0x00000001, 0x3F808000, 0x3F818000
    x = torch.tensor(bits.view("float32")).to(getattr(torch, dtype))
    for schedule in SCHEDULES:
        y = torch.full_like(x, 77)
        compile_program(p.finish(), schedule)(1000, x, y)
        assert torch.equal(y.nan_to_num(-9), x.to(getattr(torch, narrow)).to(y.dtype).nan_to_num(-9))
        assert torch.equal(y.isnan(), x.isnan())
