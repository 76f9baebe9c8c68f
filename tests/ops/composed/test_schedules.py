"""What schedules of products of composed matrices make of their programs."""

import dataclasses

from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.formats.composed.spec import parse_formats
from gnn_sparse_backend.ops.composed.programs.rules import ComposedSpec
from gnn_sparse_backend.ops.composed.programs.tiled import TiledSpec
from gnn_sparse_backend.ops.composed.schedules_cpu import (
    scheduled_sliced,
    scheduled_sliced_sddmm,
    scheduled_tiled,
    turns,
)


def test_slices_of_float32_are_transposed_in_squares():
    """Forward and for the gradient of weights, in squares of the processor's vectors."""
    assert turns("float32") and not turns("bfloat16")
    spec = ComposedSpec(parse_formats(["csr"]), tile=32, turned=True)
    by_rows = dataclasses.replace(spec, turned=False)
    for features, name in (
        (("avx512f", "avx"), "gsb_transposed_16"),
        (("avx",), "gsb_transposed_8"),
        ((), "gsb_transposed_4"),
    ):
        target = dataclasses.replace(host_target(), features=features)
        assert name in str(stage3(*scheduled_sliced(spec, True, target)))
        assert name in str(stage3(*scheduled_sliced_sddmm(spec, True, target)))
        assert "gsb_transposed" not in str(stage3(*scheduled_sliced(by_rows, True, target)))


def test_few_weights_are_packed_by_one_thread():
    """The kernel has one parallel loop then, and computes the same."""
    spec = TiledSpec(parse_formats(["bsr(32)"])[0])
    for few, loops in ((True, 1), (False, 2)):
        program, schedule = scheduled_tiled(spec, True, few)
        assert str(stage3(program, schedule)).count("T.parallel(") == loops
