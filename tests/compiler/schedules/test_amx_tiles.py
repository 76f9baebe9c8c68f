"""Products on tile registers: their code for a processor that has them, what they compute where this one has them, and
what is refused.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import BuildError, Target, build_jit, generate_assembly, host_target
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import cast
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.amx_tiles import amx_tiles
from gnn_sparse_backend.compiler.schedules.primitives.cpu.pairs import interleave, transpose_pairs

WITH_TILES = ("amx-bf16", "amx-tile", "avx512bf16", "avx512f", "avx512vl")
on_x86 = pytest.mark.skipif("x86_64" not in host_target().triple, reason="code for x86")
on_tiles = pytest.mark.skipif(not host_target().has_amx_bf16, reason="no tile registers for this process")
SCHEDULE = cpu_schedule(interleave("pairs"), transpose_pairs("turned"), amx_tiles(("C",)))


def sapphire_rapids() -> Target:
    return dataclasses.replace(host_target(), cpu="sapphirerapids", features=WITH_TILES, disabled=(), enabled=())


def product(rows=32, columns=32, terms=32, start="zero", pairs=True, dtype="bfloat16"):
    """Y = X W for matrices one after the other, where W comes in pairs of rows or is brought into them."""
    p = ProgramBuilder("product")
    count = p.size("count")
    I = p.dense_fixed("I", count)
    M, N, K = p.dense_fixed("M", rows), p.dense_fixed("N", columns), p.dense_fixed("K", terms)
    H, E, Q = p.dense_fixed("H", terms // 2), p.dense_fixed("E", 2 * columns), p.dense_fixed("Q", 2)
    X, W = p.buffer("X", (I, M, K), dtype), p.buffer("W", (I, K, N), "bfloat16")
    P, Y = p.buffer("P", (I, H, E), "bfloat16"), p.buffer("Y", (I, M, N), "float32")
    T = p.buffer("T", (I, N, p.dense_fixed("K2", 2 * (terms // 2))), "bfloat16")
    with p.iterate("each", (I,), "S", ("i",)) as (i,):
        C = p.local("C", (M, N), "float32")
        with p.iterate("pairs", (H, N), "SS", ("h", "n0")) as (h, n):
            for q in (0, 1):
                P[i, h, 2 * n + q] = W[i, 2 * h + q, n]
        with p.iterate("turned", (H, N, Q), "SSS", ("h1", "n1", "q")) as (h, n, q):
            T[i, n, 2 * h + q] = P[i, h, 2 * n + q]
        with p.iterate("start", (M, N), "SS", ("m1", "n2")) as (m, n):
            C[m, n] = 0.0 if start == "zero" else Y[i, m, n]
        with p.iterate("terms", (M, N, K), "SSR", ("m2", "n3", "k")) as (m, n, k):
            right = P[i, k // 2, 2 * n + k % 2] if pairs else W[i, k, n]
            C[m, n] = C[m, n] + cast("float32", X[i, m, k]) * cast("float32", right)
        with p.iterate("end", (M, N), "SS", ("m3", "n4")) as (m, n):
            Y[i, m, n] = C[m, n]
    return p.finish()


@on_x86
@pytest.mark.parametrize("terms", [32, 64])
def test_the_code_keeps_sums_in_registers(terms):
    text = generate_assembly(stage3(product(terms=terms), SCHEDULE), sapphire_rapids())
    found = {word: text.count(f"\t{word}\t") for word in ("ldtilecfg", "tdpbf16ps", "tileloadd", "tilestored")}
    steps = terms // 32
    setups = found.pop("ldtilecfg")
    assert setups and text.count("\ttilerelease\n") == setups
    whole = found["tilestored"] // 4
    assert whole and found == {"tdpbf16ps": 4 * steps * whole, "tileloadd": 4 * steps * whole, "tilestored": 4 * whole}


@on_x86
def test_there_is_no_code_for_other_processors():
    target = dataclasses.replace(sapphire_rapids(), cpu="skylake-avx512", features=("avx512f",))
    with pytest.raises(BuildError, match="is for processors with"):
        build_jit(stage3(product(), SCHEDULE), target)


@on_tiles
@pytest.mark.short(1)
@pytest.mark.parametrize("start", ["zero", "fill"])
@pytest.mark.parametrize("rows, columns, terms", [(16, 16, 32), (16, 32, 64), (32, 32, 32), (16, 48, 96), (48, 16, 64)])
def test_tiles_compute_what_the_loops_say(rows, columns, terms, start):
    """With what is not finite; numbers are small integers, whose sums are exact in any order."""
    torch = pytest.importorskip("torch")
    program = product(rows, columns, terms, start)
    rng = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-4, 5, shape, generator=rng).bfloat16() for shape in ((3, rows, terms), (3, terms, columns)))
    y = torch.randint(-9, 10, (3, rows, columns), generator=rng).float()
    x[1, 2, 3], w[2, 4, 5] = float("inf"), float("nan")
    pairs, turned = (torch.zeros(3, *shape).bfloat16() for shape in ((terms // 2, 2 * columns), (columns, terms)))
    arguments = {"count": 3, "X": x, "W": w, "P": pairs, "Y": y, "T": turned}
    doubles = {name: v if name == "count" else v.double().numpy() for name, v in arguments.items()}
    want = interpret(program, doubles)
    compile_program(program, SCHEDULE)(*(arguments[name] for name in program.parameter_names))
    np.testing.assert_array_equal(y.numpy(), want["Y"])
    np.testing.assert_array_equal(turned.float().numpy(), want["T"])
    assert np.isnan(want["Y"][2, :, 5]).all() and np.isfinite(want["Y"][0]).all()


def test_loops_without_the_schedule_say_the_same():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, (1, 16, 32)).astype(float), rng.integers(-3, 4, (1, 32, 16)).astype(float)
    program = product(16, 16, 32)
    arguments = {"count": 1, "X": x, "W": w, "P": np.zeros((1, 16, 32)), "Y": np.zeros((1, 16, 16))}
    arguments["T"] = np.zeros((1, 16, 32))
    run = run_loops(stage3(program, cpu_schedule(parallel=False, vectorize=False)), arguments)
    np.testing.assert_array_equal(run["Y"], x @ w)
    np.testing.assert_array_equal(run["T"][0], w[0].T)


@pytest.mark.parametrize(
    "program, words",
    [
        (product(pairs=False), "is not an operand in rows"),
        (product(rows=24), "not in whole tiles"),
        (product(rows=64, columns=64), "want more registers"),
        (product(dtype="float16"), "converted from bfloat16"),
    ],
)
def test_refuses_what_tiles_do_not_multiply(program, words):
    with pytest.raises(StageIError, match=words):
        stage3(program, cpu_schedule(amx_tiles(("C",))))


def test_refuses_what_are_no_pairs():
    with pytest.raises(StageIError, match="not in vectors of 16"):
        stage3(product(columns=24), cpu_schedule(interleave("pairs")))
    with pytest.raises(StageIError, match="is not two stores"):
        stage3(product(), cpu_schedule(interleave("turned")))
    with pytest.raises(StageIError, match="one of 2"):
        stage3(product(), cpu_schedule(transpose_pairs("pairs")))
    with pytest.raises(StageIError, match="no iteration has nothing"):
        stage3(product(), cpu_schedule(amx_tiles(("C", "nothing"))))
