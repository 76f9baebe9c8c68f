"""Products on Tensor Cores of matrices that are not whole tiles: any widths, padded with zeros where they are
multiplied.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen.cuda.machine_code import compile_cuda
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.grouped import schedules_cuda as cuda_grouped
from gnn_sparse_backend.ops.grouped.programs.grouped import GroupedSpec
from gnn_sparse_backend.ops.grouped.programs.grouped_tiles import TilesSpec, grouped_tiles
from gnn_sparse_backend.ops.relational import schedules_cuda as cuda_rgms
from gnn_sparse_backend.ops.relational.programs.rgms_tiles import RgmsTilesSpec
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc, source


@pytest.mark.short(2)
@pytest.mark.parametrize("by_columns", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize(
    "widths, dtype, run",
    [
        ((20, 12), "float16", run_loops),
        ((5, 11), "bfloat16", run_loops),
        ((1, 8), "float32", interpret),
        ((5, 3), "float16", interpret),
    ],
)
def test_fragments_give_the_product_of_any_widths(widths, dtype, run, by_columns):
    """Two steps and two tiles of columns of which the last is not full; fewer than a tile; odd widths, whose rows begin
    at no vector. Beside rows and matrices of others that are NaN, which zeros in their place do not meet."""
    inner, outer = widths
    program = grouped_tiles(TilesSpec(inner, outer, 1, (True, False), dtype, by_columns=by_columns))
    rng = np.random.default_rng(0)
    a, w = np.full((11, inner), np.nan), np.full((3, outer, inner), np.nan)
    a[1:10], w[1] = rng.integers(-4, 5, (9, inner)) / 4, rng.integers(-4, 5, (outer, inner)) / 4
    rows = rng.integers(1, 10, 12)  # a panel that is not full
    arguments = {
        "num_groups": 1,
        "num_panels": 1,
        "relations": 3,
        "rows_a": 11,
        "rows_c": 14,
        "positions": 14,
        "group_ptr": np.array([0, 1]),
        "Start": np.array([1]),
        "Stop": np.array([13]),
        "Relation": np.array([1]),
        "RowsA": np.concatenate([[0], rows, [10]]),
        "A": a,
        "W": w if by_columns else w.swapaxes(1, 2),
        "C": np.full((14, outer), np.nan),
    }
    subject = (
        program
        if run is interpret
        else stage3(program, team_schedule(32, multiply_fragments("mma"), teams=4), serial=True)
    )
    found = run(subject, arguments)["C"]
    np.testing.assert_allclose(found[1:13], a[rows] @ w[1].T, rtol=0, atol=1e-12)
    assert np.isnan(found[[0, 13]]).all()


def test_tensor_cores_take_what_fills_their_tiles_somewhat():
    tiles = functools.partial(cuda_grouped.tiles, arch="sm_90")
    for dtype in ("float16", "bfloat16", "float32"):
        for classes in (2, 3, 4, 11):
            assert tiles(16, classes, dtype) and tiles(classes, 16, dtype)
        assert tiles(32, 1, dtype) and not tiles(1, 1, dtype)  # one of 128 products, or 64, would be one of the matrix


KERNELS = {
    "rgms_4_float16": lambda arch: cuda_rgms.tiles_kernel(RgmsTilesSpec(64, 4, 2, True, 1, "float16"), arch),
    "rgms_of_11_bfloat16": lambda arch: cuda_rgms.tiles_kernel(RgmsTilesSpec(11, 64, 2, True, 1, "bfloat16"), arch),
    "rgms_11_tf32": lambda arch: cuda_rgms.tiles_kernel(RgmsTilesSpec(36, 11, 1, False, 1, "float32"), arch),
    "tiles_100_18_float16": lambda arch: cuda_grouped.tiles_kernel(
        GroupedSpec(100, 18, 32, 0, (True, True), "float16"), arch
    ),
    "tiles_7_bfloat16": lambda arch: cuda_grouped.tiles_kernel(
        GroupedSpec(7, 7, 32, 0, (True, False), "bfloat16"), arch
    ),
}
COMPILED = ["rgms_11_tf32", "rgms_4_float16", "tiles_7_bfloat16"]
source_of = functools.lru_cache(maxsize=None)(lambda name, arch: source(KERNELS[name], arch))
INSTRUCTIONS = {
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
}


@pytest.mark.short(1)
@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", COMPILED)
def test_machine_code_without_spills(name, arch):
    check_machine_code(source_of(name, arch), arch, shared=8 << 10 if "rgms" in name else 0)


@pytest.mark.short(1)
@needs_nvcc
@pytest.mark.parametrize("name", COMPILED)
def test_products_use_tensor_cores(name):
    ptx = compile_cuda(source_of(name, "sm_80"), "sm_80", "ptx").code.decode()
    assert f"mma.sync.aligned.{INSTRUCTIONS[name.split('_')[-1]]}" in ptx


def test_rows_of_even_widths_are_loaded_in_vectors():
    """Pairs of 16-bit elements, as in whole tiles; a row of seven begins at no pair."""
    assert "half2*)(A_ptr" in source_of("tiles_100_18_float16", "sm_80")
    assert "bfloat162*)(A_ptr" not in source_of("tiles_7_bfloat16", "sm_80")
