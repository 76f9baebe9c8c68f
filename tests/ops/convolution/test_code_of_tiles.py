"""The programs of sparse convolution for a GPU: interpreted, and their code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.convolution.executables_cuda import Tiles
from gnn_sparse_backend.ops.convolution.programs.tiles_cuda import SHARED, ConvTilesSpec, conv_tiles
from gnn_sparse_backend.ops.convolution.schedules_cuda import (
    ACCUMULATED,
    MOST_ROWS,
    SHARED_BYTES,
    depthwise_kernel,
    tiles_kernel,
    tiles_spec,
)
from tests.compiler import cuda_code
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc
from tests.ops.convolution.pairs import exact, random_map


@pytest.mark.parametrize(
    "run, spec",
    [
        (interpret, ConvTilesSpec(3, 5, window=3, dtype="float32")),
        pytest.param(run_loops, ConvTilesSpec(32, 8, window=16, part=4), marks=pytest.mark.slow),
        (interpret, ConvTilesSpec(2, 5, tiles=(2, 1), across=4, window=2, dtype="float32", by_columns=True)),
        pytest.param(
            run_loops,
            ConvTilesSpec(8, 36, tiles=(2, 1), across=8, window=4, part=4, dtype="float32"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            run_loops,
            ConvTilesSpec(16, 20, (2, 2), (1, 2), window=16, part=2, groups=2, dtype="bfloat16"),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["padded, interpreted", "windows", "full precision, by columns", "vectors", "groups"],
)
def test_blocks_give_the_sums_of_products(run, spec):
    kernel_map = random_map((40, 30), 5, 0.5)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (30, spec.groups, spec.in_features)) / 4
    w = rng.integers(-4, 5, (5, spec.groups, spec.in_features, spec.out_features)) / 4
    x[-1], w[3] = np.nan, np.nan  # which nothing meets
    tiles, panels, panel_ptr, offset, inputs, row = kernel_map.derived(Tiles(spec.rows))
    arguments = {
        "num_tiles": tiles,
        "panels": panels,
        "cols": 30,
        "rows": 40,
        "offsets": 5,
        "panel_ptr": panel_ptr.numpy(),
        "Offset": offset.numpy(),
        "In": inputs.numpy(),
        "Row": row.numpy(),
        "X": x,
        "W": np.ascontiguousarray(w.swapaxes(2, 3)) if spec.by_columns else w,
        "O": np.full((40, spec.groups, spec.out_features), -1.0),
    }
    program = conv_tiles(spec)
    schedule = team_schedule(32, *map(multiply_fragments, spec.product.instruction), teams=1, shared=(SHARED,))
    found = run(program if run is interpret else stage3(program, schedule, serial=True), arguments)["O"]
    wanted = exact(kernel_map, torch.from_numpy(x).flatten(1), torch.from_numpy(w))
    np.testing.assert_allclose(found.reshape(40, -1), wanted.numpy(), rtol=0, atol=1e-12)


def test_tiles_of_rows():
    """Each row is in one place; panels are the offsets that any row of a tile meets; rows alike lie together."""
    kernel_map = random_map((100, 90), 70, 0.1)  # more offsets than a word has bits
    tiles, panels, panel_ptr, offset, inputs, row = kernel_map.derived(Tiles(16))
    assert (tiles, panels) == (7, len(offset)) and sorted(row.flatten().tolist()) == [-1] * 12 + list(range(100))
    tile = torch.repeat_interleave(panel_ptr.long().diff())
    pairs = {(int(offset[c]), int(inputs[c, m]), int(row[tile[c], m])) for c, m in (inputs >= 0).nonzero().tolist()}
    of_pair = torch.repeat_interleave(kernel_map.indptr.long().diff())
    assert pairs == set(zip(of_pair.tolist(), kernel_map.inputs.tolist(), kernel_map.outputs.tolist()))
    assert bool((inputs >= 0).any(1).all())
    same = random_map((64, 66), 1, 1.0)
    assert same.derived(Tiles(16))[1] == 4


SHAPES = [  # F_in, F_out, dtype, full precision
    (64, 64, "float16", False),
    (4, 32, "float16", False),
    (96, 128, "bfloat16", False),
    (37, 11, "float16", False),
    (256, 256, "float32", False),
    (96, 96, "float32", True),
    (4, 32, "float32", True),
]


def test_shapes_of_blocks():
    for f_in, f_out, dtype, full in SHAPES:
        spec = tiles_spec(f_in, f_out, dtype, "sm_90", 1, 1 << 14, full)
        assert spec.width * spec.grid >= f_out and spec.tiles[0] * spec.tiles[1] <= ACCUMULATED[full], spec
        assert 8 <= spec.rows <= MOST_ROWS and spec.shared_bytes <= SHARED_BYTES, spec
        assert f_in % spec.window == 0 and spec.window % spec.part == 0 and (spec.across > 0) == full, spec
    rows = [tiles_spec(64, 64, "float16", "sm_90", 1, n).rows for n in (512, 1 << 14, 1 << 20)]
    assert rows == sorted(rows) and rows[0] < rows[-1]
    for f_in, dtype, arch in ((64, "float64", "sm_90"), (64, "float16", "sm_75"), (1, "float16", "sm_90")):
        assert tiles_spec(f_in, f_in, dtype, arch, 1, 1 << 14) is None


def test_what_blocks_do_not_take_is_refused():
    for spec, reason in (
        (ConvTilesSpec(16, 8, across=3, window=16, dtype="float32"), "lanes in 3 stretches"),
        (ConvTilesSpec(16, 8, window=16, dtype="float64"), "Tensor Cores do not multiply float64 here"),
        (ConvTilesSpec(32, 8, window=8), "windows of 8 channels do not divide 32 in whole steps"),
        (ConvTilesSpec(18, 8, window=18, part=4), "parts of 4 do not divide 18 channels"),
    ):
        with pytest.raises(StageIError, match=f"conv_tiles: {reason}"):
            conv_tiles(spec)


def kernels(arch: str):
    """(name, bytes of shared memory, registers, what makes it)."""
    for f_in, f_out, dtype, full in SHAPES:
        for by_columns in (False, True):
            spec = tiles_spec(f_in, f_out, dtype, arch, 1, 1 << 14, full)
            spec = ConvTilesSpec(**(vars(spec) | {"by_columns": by_columns}))
            make = tiles_kernel.__wrapped__
            yield spec, SHARED_BYTES, lambda arch, spec=spec, make=make: make(spec, arch)
    for make, width, dtype in (("rows", 96, "float16"), ("parts", 96, "float32"), ("rows", 7, "bfloat16")):
        described = make, width, dtype, "int32"
        yield described, 0, lambda arch, d=described: depthwise_kernel.__wrapped__(*d, arch)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code_without_spills(arch):
    """At most 128 registers, on Tensor Cores too: four blocks of four warps on a multiprocessor."""
    for spec, shared, make in kernels(arch):
        text = cuda_code.source(make, arch)
        assert "atomic" not in text
        if isinstance(spec, ConvTilesSpec):
            assert ("mma.sync" in text) == (not spec.across) and "__shared__" in text
        check_machine_code(text, arch, shared)


def test_code_loads_vectors():
    """Rows of X in 8 or 16 bytes, elements of the matrix in pairs; instructions of Tensor Cores."""
    spec = tiles_spec(64, 64, "float16", "sm_80", 1, 1 << 14)
    text = cuda_code.source(lambda arch: tiles_kernel.__wrapped__(spec, arch), "sm_80")
    assert "half4*)(X_ptr" in text and "m16n8k16.row.col.f32.f16.f16.f32" in text and "half2*)(W_ptr" in text
