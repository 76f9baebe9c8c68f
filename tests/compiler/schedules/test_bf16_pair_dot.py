"""bfloat16 features two at a time: what is computed, on any CPU, and the code for CPUs that have an instruction for it.

That code is compiled and read here. What it computes is checked by running the same calls: by the instruction where
this machine has it, else by the functions' other text, which says in ordinary instructions what the instruction does.
"""

from __future__ import annotations

import dataclasses
import functools
import re

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import Target, build_jit, host_target
from gnn_sparse_backend.compiler.codegen.cpu.instructions.pair_dot import llvm_text
from gnn_sparse_backend.compiler.compile import compile_program, stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import cast
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.bf16_pair_dot import bf16_pair_dot
from gnn_sparse_backend.ops.grouped import schedules_cpu as grouped
from gnn_sparse_backend.ops.grouped.programs.grouped import GroupedSpec, grouped_product
from gnn_sparse_backend.ops.relational import schedules_cpu as rgms
from gnn_sparse_backend.ops.relational.programs.rgms import RgmsSpec
from gnn_sparse_backend.planner.cpu.tiling import product_rows

FEATURES = {
    "znver2": ("avx", "avx2", "fma"),
    "skylake-avx512": ("avx", "avx2", "avx512f", "avx512vl"),
    "sapphirerapids": ("avx", "avx2", "avx512bf16", "avx512f", "avx512vl"),
    "znver4": ("avx", "avx2", "avx512bf16", "avx512f", "avx512vl"),
}


def target_of(cpu: str) -> Target:
    return dataclasses.replace(host_target(), cpu=cpu, features=FEATURES[cpu], disabled=())


def has_bf16_pairs(dtype: str, target: Target) -> bool:
    return dtype == "bfloat16" and target.has_avx512_bf16


def grouped_of(out_features: int, dtype: str, target: Target):
    bf16_pairs = has_bf16_pairs(dtype, target)
    spec = GroupedSpec(64, out_features, product_rows(target), 0, (True, True), dtype, bf16_pairs=bf16_pairs)
    return grouped.scheduled(grouped_product, spec, True, target)


def rgms_of(make: str, dtype: str, target: Target):
    bf16_pairs = make != "gather" and has_bf16_pairs(dtype, target)
    return rgms.scheduled(make, RgmsSpec(64, 64, 1, 16, 0, 0, 0, True, dtype, bf16_pairs=bf16_pairs), True, 16, target)


@pytest.mark.parametrize(
    "features, dtype, cpu, taken",
    [
        (64, "bfloat16", "znver4", True),
        (63, "bfloat16", "znver4", False),
        (64, "float16", "znver4", False),
        (64, "float32", "znver4", False),
        (64, "bfloat16", "sapphirerapids", False),
        (64, "bfloat16", "skylake-avx512", False),
    ],
)
def test_where_plans_take_two_at_a_time(features, dtype, cpu, taken):
    assert grouped.takes_bf16_pairs(features, dtype, target_of(cpu)) == taken


@functools.cache
def longest_loop(kernel: str, dtype: str, cpu: str) -> tuple[str, ...]:
    """The instructions of the innermost loop with the most products, in the code for this CPU."""
    target = target_of(cpu)
    program, schedule = grouped_of(64, dtype, target) if kernel == "grouped" else rgms_of(kernel, dtype, target)
    lines = build_jit(stage3(program, schedule), target).module.inspect_source("s").splitlines()
    at = {line.split(":")[0]: n for n, line in enumerate(lines) if line.startswith(".L")}
    loops = [
        lines[at[target] : n]
        for n, line in enumerate(lines)
        for target in re.findall(r"\sj\w+\s+(\.L\w+)", line)
        if at.get(target, n) < n
    ]
    inner = [loop for loop in loops if not any(line.startswith(".L") for line in loop[1:])]
    return tuple(max(inner, key=lambda loop: sum("vdpbf16ps" in line or "vfmadd" in line for line in loop)))


on_x86 = pytest.mark.skipif("x86_64" not in host_target().triple, reason="code for x86")


@on_x86
@pytest.mark.parametrize(
    "kernel, cpu", [("grouped", "sapphirerapids"), ("scatter", "sapphirerapids"), ("dot", "znver4")]
)
def test_one_instruction_for_two_features(kernel, cpu):
    loop = longest_loop(kernel, "bfloat16", cpu)
    products = [line for line in loop if "vdpbf16ps" in line and "zmm" in line]
    # four rows by four vectors, each vector of the matrix and each two features of a row loaded once
    assert products and len(products) % 16 == 0 and not any("vfmadd" in line for line in loop)
    assert sum("(" in line and "zmm" in line for line in loop) == len(products) // 2
    assert not any("(%rsp" in line for line in loop)


@on_x86
@pytest.mark.parametrize(
    "kernel, dtype, cpu",
    [
        ("grouped", "bfloat16", "skylake-avx512"),
        ("gather", "float32", "skylake-avx512"),
        ("gather", "bfloat16", "sapphirerapids"),
    ],
)
def test_without_it_vectors_are_whole_and_stay_in_registers(kernel, dtype, cpu):
    """Sums are not rounded for the instruction, so those that are gathered do not use it."""
    loop = longest_loop(kernel, dtype, cpu)
    products = [line for line in loop if "vfmadd" in line]
    assert products and len(products) % 16 == 0 and all("zmm" in line for line in products)
    assert not any("vdpbf16ps" in line or "(%rsp" in line for line in loop)


@on_x86
@pytest.mark.parametrize("kernel", ["grouped", "gather", "scatter", "sum"])
def test_sixteen_registers_hold_ten_sums(kernel):
    """Of two units with five cycles for a sum neither is idle, and nothing goes through memory."""
    loop = longest_loop(kernel, "float32", "znver2")
    products = [line for line in loop if "vfmadd" in line]
    assert products and len(products) % 10 == 0 and all("ymm" in line for line in products)
    assert not any("ymm" in line and "(%rsp" in line for line in loop)


@on_x86
def test_the_instruction_where_there_is_one_of_the_width():
    features = set(FEATURES["znver4"])
    assert "dpbf16ps.512" in llvm_text(16, features) and "dpbf16ps.128" in llvm_text(4, features)
    assert all(
        "dpbf16ps" not in text
        for text in (
            llvm_text(3, features),
            llvm_text(16, features - {"avx512bf16"}),
            llvm_text(8, features - {"avx512vl"}),
        )
    )
    assert grouped.vectors(47, 16, True) == (16, 16, 8, 4, 3) and grouped.vectors(47, 16) == (16, 16, 15)


def product(features: int = 6, columns: int = 21, swapped: bool = False, dtype: str = "bfloat16"):
    """S[k] = sum of A[i] * W[i, k] for one vector; swapped: the matrix stands first."""
    p = ProgramBuilder("product")
    count = p.size("count")
    I, FP, TW = p.dense_fixed("I", count), p.dense_fixed("FP", features // 2), p.dense_fixed("TW", 2)
    F, K, KQ = p.dense_fixed("F", features), p.dense_fixed("K", columns), p.dense_fixed("KQ", 2 * columns)
    A, W = p.buffer("A", (I, F), dtype, strided=True), p.buffer("W", (FP, KQ), dtype)
    C = p.buffer("C", (I, K), "float32")
    with p.iterate("rows", (I,), "S", ("n",)) as (n,):
        Sum = p.local("Sum", (K,), "float32")
        with p.iterate("sum", (FP, TW, K), "RRS", ("i", "q", "k")) as (i, q, k):
            with p.init():
                Sum[k] = 0.0
            a, w = cast("float32", A[n, i * 2 + q]), cast("float32", W[i, k * 2 + q])
            Sum[k] = Sum[k] + (w * a if swapped else a * w)
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            C[n, f] = Sum[f]
    return grouped.tile_axis(p.finish(), "K", (grouped.vectors(columns, 8, True),))


def test_the_call_computes_what_the_loops_say():
    """Odd widths, strided rows at addresses of two bytes, and what is not finite."""
    program = product()
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(5, 9, generator=generator).bfloat16()[:, 1:7]
    w = torch.randn(3, 42, generator=generator).bfloat16()
    a[3, 2], w[1, 8] = float("inf"), float("nan")
    arguments = {"count": 5, "A": a.double().numpy(), "W": w.double().numpy(), "C": np.zeros((5, 21))}
    want = interpret(program, arguments)["C"]
    np.testing.assert_array_equal(
        run_loops(stage3(program, cpu_schedule(parallel=False, vectorize=False)), arguments)["C"], want
    )
    for schedule in (cpu_schedule(), cpu_schedule(*grouped.bf16_pair_dots(program))):
        out = torch.full((5, 21), float("nan"))
        compile_program(program, schedule)(5, a, w, out)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-6, atol=1e-6)
    assert (
        grouped.bf16_pair_dots(program) == (bf16_pair_dot("sum_tile_0"),)
        and np.isnan(want[:, 4]).all()
        and np.isfinite(want[0]).sum() == 20
    )


@pytest.mark.parametrize(
    "program, words",
    [(product(swapped=True), "does not lie as the operands"), (product(dtype="float16"), "two bfloat16 numbers")],
)
def test_refuses_what_the_instruction_does_not_compute(program, words):
    with pytest.raises(StageIError, match=words):
        stage3(program, cpu_schedule(bf16_pair_dot("sum_tile_0")))


def test_refuses_other_iterations():
    with pytest.raises(StageIError, match="not a reduction over two terms"):
        stage3(product(), cpu_schedule(bf16_pair_dot("out_0")))
    with pytest.raises(StageIError, match="7 features do not come two at a time"):
        grouped_product(GroupedSpec(7, 4, 4, 4, dtype="bfloat16", bf16_pairs=True))
