"""Elementary functions on the CPU: their error, their special values, and that they are computed in vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import Target, build_jit, cuda_source, cuda_target, host_target
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import call, cast, exp, log, sqrt, tanh
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script, script
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule

WIDTH = 64
VECTORS, SCALARS = cpu_schedule(parallel=False), cpu_schedule(parallel=False, vectorize=False)
EXACT = {  # in a type wider than the one under test
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "abs": np.abs,
}
# units in the last place, as `compiler.codegen.cpu.formulas` promises; sqrt and abs are instructions
MOST = {"exp": 1.25, "log": 1.0, "tanh": 1.5, "sigmoid": 2.5, "sqrt": 0.5, "abs": 0.0}


def elementwise(function, dtype: str = "float32", width: int = WIDTH):
    """Y[i, k] = function(X[i, k])."""
    p = ProgramBuilder("elementwise")
    (m,) = p.sizes("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", width)
    X, Y = p.buffer("X", (I, K), dtype), p.buffer("Y", (I, K), dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("map", (K,), "S") as (k,):
            Y[i, k] = function(X[i, k])
    return p.finish()


def run(kernel, x: np.ndarray) -> np.ndarray:
    y = np.full_like(x, 77)
    kernel(len(x), x, y)
    return y


def samples(dtype: str, name: str) -> np.ndarray:
    """Every exponent of both signs, the range where exp is finite, and the neighbourhood of 1, where log is small."""
    rng = np.random.default_rng(7)
    most = {"float32": (-104, 89), "float64": (-746, 710)}[dtype]
    exponents = {"float32": (-149, 128), "float64": (-1074, 1024)}[dtype]
    count = 200_000
    found = [
        rng.uniform(*most, count),
        rng.uniform(-3, 3, count),
        2.0 ** rng.uniform(*exponents, count) * rng.choice([-1, 1], count),
        1 + rng.uniform(-1, 1, count) * 2.0 ** rng.uniform(-50, -1, count),
        # around multiples of ln(2) / 2, where the reduced argument changes sign or is longest
        np.arange(-1100, 1100) * np.log(2) / 2 * (1 + rng.uniform(-1e-7, 1e-7, 2200)),
    ]
    x = np.concatenate(found).astype(dtype)
    if name in ("log", "sqrt"):
        x = np.abs(x)
    return x[np.isfinite(x)][: len(x) // WIDTH * WIDTH - 64 * WIDTH].reshape(-1, WIDTH)


def units(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place; below the smallest normal number these stay as they are there."""
    dtype = got.dtype
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = np.spacing(np.maximum(np.abs(rounded[finite]), np.finfo(dtype).tiny)).astype(exact.dtype)
    return float(np.max(np.abs(got[finite].astype(exact.dtype) - exact[finite]) / unit))


@pytest.mark.parametrize("schedule", [VECTORS, SCALARS], ids=["vectors", "scalars"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(EXACT))
def test_error_is_within_the_promise(name, dtype, schedule):
    if dtype == "float64" and np.finfo(np.longdouble).nmant <= 52:
        pytest.skip("this NumPy has no type wider than float64")
    kernel = compile_program(elementwise(lambda x: call(name, x), dtype), schedule)
    x = samples(dtype, name)
    with np.errstate(over="ignore"):
        exact = EXACT[name](x.astype("float64" if dtype == "float32" else np.longdouble))
    assert units(run(kernel, x), exact) <= MOST[name]


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="needs an x86-64 processor")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid"])
def test_error_without_fused_multiply_add_or_with_narrower_vectors(name, cpu):
    if cpu == "haswell" and "avx2" not in host_target().features:
        pytest.skip("this processor has no AVX2")
    target = Target("llvm", cpu, host_target().triple)
    x = samples("float32", name)
    module = build_jit(stage3(elementwise(lambda x: call(name, x)), VECTORS), target)
    with np.errstate(over="ignore"):
        exact = EXACT[name](x.astype("float64"))
    assert units(run(module["elementwise"], x), exact) <= MOST[name]


INF, NAN = np.inf, np.nan
SPECIAL = {
    "exp": [(-INF, 0), (INF, INF), (NAN, NAN), (0.0, 1), (-0.0, 1), (1e30, INF), (-1e30, 0), (1e-40, 1)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0), (INF, INF), (-INF, NAN), (-1.0, NAN), (-1e-40, NAN), (NAN, NAN)],
    "tanh": [(INF, 1), (-INF, -1), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (1e30, 1), (-1e30, -1)],
    "sigmoid": [(INF, 1), (-INF, 0), (NAN, NAN), (0.0, 0.5), (1e30, 1), (-1e30, 0)],
    "sqrt": [(INF, INF), (-1.0, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "abs": [(INF, INF), (-INF, INF), (NAN, NAN), (-0.0, 0.0)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(name, dtype):
    given, wanted = (np.resize(np.array(v, dtype), (1, WIDTH)) for v in zip(*SPECIAL[name]))
    for schedule in (VECTORS, SCALARS):
        got = run(compile_program(elementwise(lambda x: call(name, x), dtype), schedule), given)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got)[~np.isnan(wanted)], np.signbit(wanted)[~np.isnan(wanted)])


def test_exp_overflows_and_underflows_where_it_should():
    edges = {
        "float32": (88.72283, 88.72284, -103.97208, -103.97209),
        "float64": (709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412),
    }
    for dtype, values in edges.items():
        last, infinite, smallest, zero = run(
            compile_program(elementwise(exp, dtype), VECTORS), np.resize(np.array(values, dtype), (1, WIDTH))
        )[0, :4]
        info = np.finfo(dtype)
        assert last > info.max * (1 - 1e-4) and np.isinf(infinite)
        assert smallest == info.smallest_subnormal and zero == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid"])
def test_narrow_types_are_computed_in_float32(name, dtype):
    """Every number of the type: the exact result rounded, or one unit beside it where float32 rounded first."""
    torch = pytest.importorskip("torch")
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(getattr(torch, dtype)).reshape(-1, WIDTH)
    y = torch.full_like(x, 77)
    compile_program(elementwise(lambda x: call(name, x), dtype), VECTORS)(len(x), x, y)
    exact = getattr(torch, name)(x.double())
    wanted = exact.to(x.dtype)
    assert torch.equal(y.isnan(), wanted.isnan())
    there = ~wanted.isnan()
    steps = (y[there].view(torch.int16).int() - wanted[there].view(torch.int16).int()).abs()
    assert steps.max() <= 1 and (steps > 0).float().mean() < 1e-3


@pytest.mark.skipif("avx2" not in host_target().features, reason="the instructions looked for are AVX2's")
@pytest.mark.parametrize("schedule", [VECTORS, SCALARS], ids=["vectors", "scalars"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid"])
def test_machine_code_is_packed(name, schedule):
    """64 elements: arithmetic on whole registers and none on single numbers, and no call of the C library."""
    built = build_jit(stage3(elementwise(lambda x: call(name, x)), schedule), host_target())
    assembly = built.module.inspect_source("s")
    instructions = re.findall(r"^\t(v?\w+)\t", assembly, re.MULTILINE)
    packed = [i for i in instructions if re.fullmatch(r"v(fn?m(add|sub)\d+|mul|add|sub|div)ps", i)]
    single = [i for i in instructions if re.fullmatch(r"v(fn?m(add|sub)\d+|mul|add|sub|div)ss", i)]
    registers = 64 * 4 // host_target().vector_bytes
    assert len(packed) >= 8 * registers or (schedule is SCALARS and len(packed) >= 8)  # a loop over registers will do
    assert not single
    called = re.findall(rf"\b(?:call|jmp)\w*\s+\S*(?:{name}|exp|log)f?\b", assembly)
    assert not called


def test_function_of_a_scalar_in_a_vector_loop():
    """A weight per row, its exponential times every feature."""
    p = ProgramBuilder("scale")
    (m,) = p.sizes("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", 16)
    W, X, Y = p.buffer("W", (I,), "float32"), p.buffer("X", (I, K), "float32"), p.buffer("Y", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("map", (K,), "S") as (k,):
            Y[i, k] = exp(log(exp(W[i]))) * X[i, k]
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal(9).astype("float32"), rng.standard_normal((9, 16)).astype("float32")
    y = np.empty_like(x)
    compile_program(p.finish(), VECTORS)(9, w, x, y)
    np.testing.assert_allclose(y, np.exp(w.astype("float64"))[:, None] * x, rtol=1e-6)


@pytest.mark.parametrize("width", [1, 7])
def test_every_stage_agrees(width):
    """All functions in one expression, through the printer and the interpreters."""

    def everything(x):
        wide = cast("float32", exp(cast("float64", x)))
        return tanh(x) + sqrt(call("abs", x)) * log(exp(x) + call("sigmoid", x)) + wide

    program = elementwise(everything, width=width)
    assert program_from_script(script(program)) == program
    x = np.random.default_rng(width).uniform(-5, 5, (6, width)).astype("float32")
    arguments = {"m": 6, "X": x, "Y": np.zeros_like(x)}
    want = interpret(program, arguments)["Y"]
    stage2 = lower(program)
    np.testing.assert_allclose(run_position(stage2, arguments)["Y"], want, rtol=1e-13)
    np.testing.assert_allclose(run_loops(flatten(stage2), arguments)["Y"], want, rtol=1e-13)
    for schedule in (VECTORS, SCALARS):
        np.testing.assert_allclose(run(compile_program(program, schedule), x), want, rtol=3e-6)


def test_the_text_kept_with_a_kernel_and_cuda_keep_the_call():
    program = elementwise(lambda x: exp(x) + tanh(x))
    assert "T.exp(" in stage3(program, VECTORS).script()
    source = cuda_source(build_jit(stage3(program, gpu_schedule()), cuda_target("sm_90")))
    assert "expf(" in source and "tanhf(" in source
