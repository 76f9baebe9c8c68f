"""Products of tiles whose sums lie in memory: what they compute on any processor, their code, and what is refused."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from gnn_sparse_backend.compiler.codegen import generate_assembly, host_target
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import cast
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.memory_tiles import CALLED, memory_tiles, tile_products
from gnn_sparse_backend.compiler.schedules.primitives.cpu.pairs import interleave, round_rows, transpose_pairs
from tests.compiler.schedules.test_amx_tiles import on_x86, product

ZEN_4 = ("avx512bf16", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512vbmi2")
PAIRS = interleave("pairs"), transpose_pairs("turned")


def zen_4():
    return dataclasses.replace(host_target(), cpu="znver4", features=ZEN_4, disabled=(), enabled=())


def whole_numbers(*shapes):
    """Small ones, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(-4, 5, shape, generator=generator).bfloat16() for shape in shapes]


@pytest.mark.short(4)
@pytest.mark.parametrize("instruction", CALLED)
@pytest.mark.parametrize("start", ["zero", "fill"])
@pytest.mark.parametrize("rows, columns, terms", [(16, 16, 32), (16, 32, 64), (32, 32, 4), (16, 48, 96), (48, 16, 64)])
def test_products_of_tiles_anywhere(rows, columns, terms, start, instruction):
    """In ordinary instructions where a processor has no others, and of what is not finite."""
    program = product(rows, columns, terms, start)
    x, w, y = whole_numbers((3, rows, terms), (3, terms, columns), (3, rows, columns))
    x[1, 2, 3], w[2, 3, 5] = float("inf"), float("nan")
    y = y.float()
    want = x.double() @ w.double() + (y.double() if start == "fill" else 0.0)
    pairs, turned = (torch.zeros(3, *shape).bfloat16() for shape in ((terms // 2, 2 * columns), (columns, terms)))
    own = {"count": 3, "X": x, "W": w, "P": pairs, "Y": y, "T": turned}
    steps = PAIRS if terms % 32 == 0 else ()
    schedule = cpu_schedule(*steps, memory_tiles(("C",), instruction))
    compile_program(program, schedule)(*(own[name] for name in program.parameter_names))
    torch.testing.assert_close(y.double(), want, rtol=0, atol=0, equal_nan=True)


def through(to="Y", between=False):
    """Products added to what Y has, which end in ``to``. between: the sums of a tile go on over several of them."""
    p = ProgramBuilder("through")
    I = p.dense_fixed("I", p.size("count"))
    M, N, K, H, E = (p.dense_fixed(name, length) for name, length in zip("MNKHE", (16, 32, 8, 4, 64)))
    X, P = p.buffer("X", (I, M, K), "bfloat16"), p.buffer("P", (I, H, E), "bfloat16")
    Y, Z = p.buffer("Y", (M, N), "float32"), p.buffer("Z", (M, N), "float32")
    one = p.dense_fixed("One", 1)
    target = {"Y": Y, "Z": Z}[to]
    with p.iterate("all", (one,), "S", ("o",)):
        C = p.local("C", (M, N), "float32")

        def start():
            with p.iterate("start", (M, N), "SS", ("m1", "n1")) as (m, n):
                C[m, n] = Y[m, n]

        def end():
            with p.iterate("end", (M, N), "SS", ("m3", "n3")) as (m, n):
                target[m, n] = C[m, n]

        if between:
            start()
        with p.iterate("each", (I,), "R", ("i",)) as (i,):
            if not between:
                start()
            with p.iterate("terms", (M, N, K), "SSR", ("m2", "n2", "k")) as (m, n, k):
                C[m, n] = C[m, n] + cast("float32", X[i, m, k]) * cast("float32", P[i, k // 2, 2 * n + k % 2])
            if not between:
                end()
        if between:
            end()
    return p.finish()


@pytest.mark.parametrize("between, to, gone", [(False, "Y", True), (False, "Z", False), (True, "Y", False)])
@pytest.mark.parametrize("instruction", CALLED)
def test_sums_are_added_up_where_they_belong(instruction, between, to, gone):
    program, schedule = through(to, between), cpu_schedule(memory_tiles(("C",), instruction), parallel=False)
    assert ("C" not in str(stage3(program, schedule).script())) == gone
    x, w, y = whole_numbers((3, 16, 8), (3, 8, 32), (16, 32))
    pairs = w.view(3, 4, 2, 32).transpose(2, 3).reshape(3, 4, 64).contiguous()
    products, y, z = x.double() @ w.double(), y.float(), torch.zeros(16, 32)
    want = y + products[-1] if to == "Z" else y + products.sum(0)
    own = {"count": 3, "X": x, "P": pairs, "Y": y, "Z": z}
    compile_program(program, schedule)(*(own[name] for name in program.parameter_names))
    torch.testing.assert_close(own[to].double(), want, rtol=0, atol=0)


def rounded(columns=32):
    p = ProgramBuilder("rounded")
    I, J = p.dense_fixed("I", p.size("count")), p.dense_fixed("J", columns)
    A, W = p.buffer("A", (I, J), "float32"), p.buffer("W", (I, J), "bfloat16")
    with p.iterate("round", (I, J), "SS", ("i", "j")) as (i, j):
        W[i, j] = cast("bfloat16", A[i, j])
    return p.finish()


def test_rows_are_rounded_as_pytorch_rounds_them():
    program = rounded()
    a = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
    a[:4, :3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    a[5] = torch.tensor([1.00390625, 1.01171875]).repeat(16)  # half way between two numbers of bfloat16
    own = {"count": 500, "A": a, "W": torch.zeros(500, 32).bfloat16()}
    compile_program(program, cpu_schedule(round_rows("round")))(*(own[name] for name in program.parameter_names))
    torch.testing.assert_close(own["W"], a.bfloat16(), rtol=0, atol=0, equal_nan=True)


@on_x86
def test_the_code_for_zen_4_has_sums_in_registers():
    """Each two terms of 8 x 32 sums are 16 instructions, none of which spills a register."""
    text = generate_assembly(stage3(product(), cpu_schedule(*PAIRS, memory_tiles(("C",), "vdpbf16ps"))), zen_4())
    loops = [part for part in re.split(r"\n\.?L\w+:", text) if part.count("vdpbf16ps") >= 16]
    assert len(loops) == 4, "tiles of 8 x 32 in 32 x 32"
    assert all(loop.count("vdpbf16ps") == 16 and "Spill" not in loop for loop in loops)


@on_x86
def test_who_has_tiles():
    """AMD's processors by pairs, Intel's only by tile registers: there pairs take twice as long as float32."""
    assert zen_4().has_bf16_tiles and tile_products(("C",), zen_4()) == memory_tiles(("C",), "vdpbf16ps")
    assert not dataclasses.replace(zen_4(), cpu="cooperlake").has_bf16_tiles
    assert not dataclasses.replace(zen_4(), features=("avx512f",)).has_bf16_tiles


def test_refuses_what_tiles_do_not_multiply():
    for program, names, words in (
        (product(terms=6), ("C",), "memory_tiles.*6 terms are not a multiple of 4"),
        (product(rows=24), ("C",), "memory_tiles.*not in whole tiles"),
        (product(), ("D",), "no iteration adds products to D"),
    ):
        with pytest.raises(StageIError, match=words):
            stage3(program, cpu_schedule(memory_tiles(names, "bfmmla")))
    with pytest.raises(StageIError, match="not in vectors of 16"):
        stage3(rounded(24), cpu_schedule(round_rows("round")))
    with pytest.raises(StageIError, match="is not one store of float32"):
        stage3(product(), cpu_schedule(round_rows("pairs")))
