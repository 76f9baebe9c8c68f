"""Kernels of the default plans for a GPU by name, what each of them is known by, and its source, without a GPU."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gnn_sparse_backend.compiler.codegen import generate_cuda
from gnn_sparse_backend.compiler.codegen.cuda.library import check_lane_reductions
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.attention import schedules_cuda as attention
from gnn_sparse_backend.ops.attention.programs.attention import AttentionSpec, Attribute
from gnn_sparse_backend.ops.attention.programs.attention_gradient import GradientSpec
from gnn_sparse_backend.ops.attention.programs.edge_softmax import EdgeSoftmaxSpec
from gnn_sparse_backend.ops.attention.programs.sums import Output, SumsSpec
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.grouped import schedules_cuda as cuda_grouped
from gnn_sparse_backend.ops.grouped.programs.grouped import GroupedSpec
from gnn_sparse_backend.ops.message import schedules_blocks
from gnn_sparse_backend.ops.message import schedules_cuda as cuda_kernels
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.edge_map import EdgeMapSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.ops.relational import schedules_cuda as cuda_rgms
from gnn_sparse_backend.ops.relational import schedules_cuda_rows as cuda_rgms_rows
from gnn_sparse_backend.ops.relational.programs.rgms_tiles import RgmsTilesSpec
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import ProductShape
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan, widest_bucket
from gnn_sparse_backend.planner.cuda.plan import BUCKETS_PAY
from gnn_sparse_backend.planner.cuda.rows import LanePlan, TeamPlan


def _aggregate(width, dtype="float32", lanes=0, cached=False, **more):
    operands = (Operand("column", (width,), dtype), Operand("edge", (1,), dtype))
    spec = AggregateSpec(parse("mul(x1, x0)"), operands, (width,), dtype, **more)
    return lambda arch: cuda_kernels.aggregate_kernel(spec, LanePlan(arch, lanes) if lanes else TeamPlan(arch, cached))


def _segments(width, **more):
    operands = (
        Operand("column", (width,), "bfloat16"),
        Operand("edge", (1,), "bfloat16"),
        Operand("row", (width,), "bfloat16"),
    )
    spec = AggregateSpec(parse("mul(mul(x1, x0), x2)"), operands, (width,), "bfloat16", numbered=True, **more)
    return lambda arch: cuda_kernels.segment_kernel(spec.in_parts()[0], arch)


def _buckets(width, dtype="float32"):
    operands = (Operand("column", (width,), dtype), Operand("edge", (1,), dtype))
    spec = AggregateSpec(parse("mul(x1, x0)"), operands, (width,), dtype, numbered=True)
    return lambda arch: cuda_kernels.bucket_kernel(spec, BucketPlan(arch, widest_bucket(BUCKETS_PAY, width)))


def _dot_attention(dtype="float32"):
    full = [Operand(at, (4, 32), dtype) for at in ("row", "column", "column")]
    score = Attribute(parse("mul(x0, x1)"), tuple(full[:2]), (4, 32))
    return AttentionSpec(score, (False, True), Attribute(parse("x0"), tuple(full[2:]), (4, 32)), (4, 1), dtype)


def _gat():
    ends = tuple(Operand(at, (8,), "float32") for at in ("row", "column"))
    score = Attribute(parse("leaky_relu(add(x0, x1), 0.2)"), ends, (8,))
    return AttentionSpec(
        score, (False,), Attribute(parse("x0"), (Operand("column", (8, 8), "float32"),), (8, 8)), (8, 1)
    )


def _edge_map():
    operands = (Operand("row", (4, 32), "bfloat16"), Operand("column", (4, 32), "bfloat16"))
    return EdgeMapSpec(parse("mul(x0, x1)"), operands, (4, 32), (False, True), "bfloat16")


def _narrow():
    return EdgeMapSpec(
        parse("mul(x0, x1)"), tuple(Operand(at, (3,), "float32") for at in ("row", "column")), (3,), (True,)
    )


def _sums():
    weighted = Output(parse("mul(x0, x1)"), (0, 1), ((8, 1), (8, 8)), (8, 8), "float32")
    outputs = (weighted, Output(parse("x0"), (0,), ((8,),), (8,), "float32"))
    return SumsSpec((Operand("edge", (8,), "float32"), Operand("column", (64,), "float32")), outputs)


def _rows(in_features, out_features, dtype, blocks=1, full=False, **more):
    return lambda arch: cuda_rgms_rows.rows_kernel(
        replace(
            cuda_rgms_rows.rows_spec(ProductShape(in_features, out_features, dtype, arch, blocks, full=full)), **more
        ),
        arch,
    )


def _dots(in_features, out_features, dtype, blocks=1, full=False):
    return lambda arch: cuda_rgms_rows.dots_kernel(
        cuda_rgms_rows.dots_spec(ProductShape(in_features, out_features, dtype, arch, blocks, full=full)), arch
    )


KERNELS = {
    "spmm_128": _aggregate(128),
    "spmm_602": _aggregate(602),
    "spmm_1": _aggregate(1),
    "spmm_2_across_lanes": _aggregate(2, lanes=32),
    "spmm_64_bfloat16": _aggregate(64, "bfloat16"),
    "max_64_with_its_edges": _aggregate(64, reduce="max", keep=("number",), numbered=True),
    "max_64_that_equal_messages_share": _aggregate(64, "float16", reduce="max", propagate=True, empty=True),
    "sum_40_int64": _aggregate(40, "int64"),
    "max_3_int64": _aggregate(3, "int64", reduce="max"),
    "spmm_128_cached": _aggregate(128, cached=True),
    "mean_602_cached": _aggregate(602, cached=True, reduce="mean", numbered=True),
    "max_64_bfloat16_cached": _aggregate(64, "bfloat16", cached=True, reduce="max", keep=("number",), numbered=True),
    "buckets_of_512": _buckets(128),
    "buckets_of_512_float16": _buckets(64, "float16"),
    "mean_3_segments": _segments(3, reduce="mean"),
    "sddmm_heads_bfloat16": lambda arch: cuda_kernels.edge_map_kernel(_edge_map(), TeamPlan(arch)),
    "sddmm_3_side_by_side": lambda arch: cuda_kernels.edge_map_kernel(_narrow(), LanePlan(arch, 32)),
    "edge_softmax": lambda arch: attention.edge_softmax_kernel(EdgeSoftmaxSpec(8), False, arch),
    "attention": lambda arch: attention.attention_kernel(_dot_attention(), TeamPlan(arch)),
    "attention_heads": lambda arch: attention.attention_kernel(_gat(), TeamPlan(arch)),
    "attention_gradient": lambda arch: attention.attention_gradient_kernel(
        GradientSpec(_dot_attention()), TeamPlan(arch)
    ),
    "attention_gradient_heads": lambda arch: attention.attention_gradient_kernel(GradientSpec(_gat()), TeamPlan(arch)),
    "sums": lambda arch: attention.sums_kernel(_sums(), TeamPlan(arch)),
    "grouped_product": lambda arch: cuda_grouped.product_kernel(
        GroupedSpec(64, 64, cuda_grouped.BLOCK_ROWS, 0, (True, False)), arch
    ),
    "grouped_sum": lambda arch: cuda_grouped.sum_kernel(GroupedSpec(64, 64, 4, 0, (True, False)), arch),
    "tiles_float16": lambda arch: cuda_grouped.tiles_kernel(GroupedSpec(64, 64, 32, 0, (True, False), "float16"), arch),
    "tiles_tf32": lambda arch: cuda_grouped.tiles_kernel(GroupedSpec(64, 64, 16, 0, (True, False), "float32"), arch),
    "outer_bfloat16": lambda arch: cuda_grouped.sum_tiles_kernel(
        GroupedSpec(128, 130, 0, 0, (True, True), "bfloat16"), arch
    ),
    "outer_float16": lambda arch: cuda_grouped.sum_tiles_kernel(
        GroupedSpec(128, 128, 0, 0, (True, True), "float16"), arch
    ),
    "outer_tf32": lambda arch: cuda_grouped.sum_tiles_kernel(
        GroupedSpec(16, 40, 0, 0, (False, False), "float32"), arch
    ),
    "rgms_outer_float16": lambda arch: cuda_rgms.sum_tiles_kernel(ProductShape(64, 64, "float16", arch), True, "int32"),
    "bsr_bfloat16": lambda arch: schedules_blocks.bsr_kernel(602, True, "bfloat16", "int32", arch),
    "bsr_tf32": lambda arch: schedules_blocks.bsr_kernel(37, False, "float32", "int64", arch),
    "sr_bcrs_float16": lambda arch: schedules_blocks.bsr_kernel(32, False, "float16", "int32", arch, True, 4),
    "rgms_float16": lambda arch: cuda_rgms.tiles_kernel(RgmsTilesSpec(64, 64, 2, True, 1, "float16"), arch),
    "rgms_blocks": lambda arch: cuda_rgms.tiles_kernel(RgmsTilesSpec(16, 16, 2, True, 8, "bfloat16"), arch),
    "rgms_rows_float16": _rows(64, 64, "float16", weighted=True),
    "rgms_rows_tf32": _rows(64, 128, "float32", out_dtype="float32"),
    "rgms_rows_blocks": _rows(16, 16, "bfloat16", 8, weighted=True),
    "rgms_rows_full": _rows(64, 64, "float32", full=True, out_dtype="float32", weighted=True),
    "rgms_rows_bfloat16": _rows(128, 128, "bfloat16", weighted=True),
    "rgms_rows_float16_by_columns": _rows(64, 64, "float16", weighted=True, by_columns=True),
    "rgms_rows_tf32_by_columns": _rows(
        64, 128, "float32", out_dtype="float32", weighted=True, index_dtype="int64", by_columns=True
    ),
    "rgms_rows_full_by_columns": _rows(
        128, 128, "float32", full=True, out_dtype="float32", weighted=True, by_columns=True
    ),
    "rgms_dots_float16": _dots(64, 64, "float16"),
    "rgms_dots_full": _dots(64, 64, "float32", full=True),
    "rgms_outer_full": lambda arch: cuda_rgms.sum_tiles_kernel(
        ProductShape(64, 64, "float32", arch, full=True), True, "int32"
    ),
    "grouped_rows_full": lambda arch: cuda_grouped.rows_kernel(
        GroupedSpec(128, 64, 64, 0, (True, False), "float32"), arch
    ),
    "outer_full": lambda arch: cuda_grouped.sum_lanes_kernel(GroupedSpec(64, 64, 0, 0, (True, True), "float32"), arch),
}
# Bytes of shared memory at most: rows of sums, chunks of positions, and rows that a block of a matrix meets.
BLOCKS = [name for name in KERNELS if name.startswith(("bsr", "sr_bcrs"))]
CHUNKS = {name: 8 << 10 if name in BLOCKS else 16 << 10 for name in KERNELS if "outer" in name or name in BLOCKS}
ROWS = [name for name in KERNELS if name.startswith("rgms_rows")]
DOTS = [name for name in KERNELS if name.startswith("rgms_dots")]
SHARED = {
    "rgms_float16": 8 << 10,
    "rgms_blocks": 9 << 10,
    **dict.fromkeys(ROWS, cuda_rgms_rows.SHARED_BYTES),
    **dict.fromkeys(DOTS, cuda_rgms_rows.DOTS_BYTES),
    "grouped_rows_full": cuda_grouped.WINDOW_BYTES,
    **CHUNKS,
}
# What the code of a product has, and nothing else.
PRODUCT = {name: "* BF_" if "full" in name else "mma.sync" for name in KERNELS}
# Products of a chunk while the next is loaded.
PIPELINED = ["outer_tf32", "outer_full", *BLOCKS]
SHUFFLES = (
    "sddmm_heads_bfloat16",
    "attention",
    "attention_gradient",
    "attention_gradient_heads",
    "spmm_2_across_lanes",
    "mean_3_segments",
)


@functools.cache
def function_of(name: str, arch: str):
    """The stage III function of a default kernel."""
    with pytest.MonkeyPatch.context() as patch:
        functions = []

        def build(program, schedule, arch):
            functions.append(stage3(program, schedule))
            return SimpleNamespace(entry=None)

        patch.setattr(cuda_build, "build", build)
        # not kept: what is built here is no kernel
        for module in (cuda_kernels, cuda_grouped, cuda_rgms, cuda_rgms_rows, cuda_bsr):
            for name_of, function in list(vars(module).items()):
                if hasattr(function, "cache_clear"):
                    patch.setattr(module, name_of, function.__wrapped__)
        KERNELS[name](arch)
        return functions[0]


@functools.cache
def source_of(name: str, arch: str) -> str:
    """The CUDA source of a default kernel."""
    function = function_of(name, arch)
    text = generate_cuda(function, arch)
    check_lane_reductions(name, function, text)
    return text
