"""Where the blocks of a loop nest begin."""

import pytest

from gnn_sparse_backend.compiler.library import products, reductions, relational
from gnn_sparse_backend.compiler.lowering.nest import Loop, plan_nest
from gnn_sparse_backend.compiler.transforms import decompose_format, group_axis, sparse_fuse, sparse_reorder
from gnn_sparse_backend.compiler.transforms import format_rules as formats
from tests.compiler.formats_by_hand import bsr_spmm, ell_spmm
from tests.compiler.message_programs import small_aggregation


def planned(program, iteration):
    """The nest as text: loops with their kinds, | where a block is closed, * at the block of init."""
    nest = plan_nest(program.iteration(iteration))
    parts = []
    for number, segment in enumerate(nest.segments):
        loops = " ".join("+".join(a.name for a in loop.axes) + ":" + loop.kind for loop in segment)
        parts.append(loops + ("*" if number == nest.init_segment else ""))
    return " | ".join(parts)


def hyb_bucket():
    program = group_axis(products.csr_spmm(4), "I")
    return decompose_format(program, [formats.hyb_bucket_rule(program, 4, name="w4")])


@pytest.mark.parametrize(
    "program, iteration, want",
    [
        (products.csr_spmm(4), "spmm", "I:S | J:R K:S*"),
        (sparse_reorder(products.csr_spmm(4), "spmm", ("K", "I", "J")), "spmm", "K:S I:S | J:R*"),
        (sparse_reorder(products.csr_spmm(4), "spmm", ("I", "K", "J")), "spmm", "I:S K:S | J:R*"),
        (ell_spmm(4, 2), "spmm", "I:S | J:R K:S*"),
        (bsr_spmm(4, 2), "zero", "M:S K:S"),
        (bsr_spmm(4, 2), "spmm", "IO:S | JO:R II:S JI:R K:S"),
        (products.dia_spmm(4), "spmm", "I:S D:R K:S*"),
        (products.batched_spmm(4), "spmm", "T:S I:S | J:R K:S*"),
        (products.csr_sddmm(4), "sddmm", "I:S | J:S K:R*"),
        (sparse_fuse(products.csr_sddmm(4), "sddmm", ("I", "J")), "sddmm", "I+J:S | K:R*"),
        (reductions.square_sum(), "squares", "I:S | J:R* | K:R"),
        (reductions.ragged_sum_4d(), "sums", "I:S | J:S | K:S | L:R*"),
        (sparse_fuse(reductions.ragged_sum_4d(), "sums", ("I", "J", "K")), "sums", "I+J+K:S | L:R*"),
        (reductions.sparse_softmax(), "rows", "I:S"),
        (reductions.sparse_softmax(), "max", "J:R*"),
        (relational.rgms_heterogeneous(4, 3), "rgms", "R:R | I:S | J:R FI:R FO:S"),
        (small_aggregation(), "rows", "G:S | I:S"),
        (small_aggregation(), "edges", "J:R K:S*"),
        (hyb_bucket(), "spmm_w4", "T:S | I_w4:S | J_w4:R K:S"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_block_boundaries(program, iteration, want):
    assert planned(program, iteration) == want


def test_a_group_with_a_reduction_axis_is_a_reduction_loop():
    fused = sparse_fuse(bsr_spmm(4, 2), "spmm", ("IO", "JO"))
    assert planned(fused, "spmm") == "IO+JO:R | II:S JI:R K:S"
    (loop, *_), *_ = plan_nest(fused.iteration("spmm")).segments
    assert loop.fused and not Loop(loop.axes[:1], "S").fused
