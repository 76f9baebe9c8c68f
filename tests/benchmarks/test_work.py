"""The byte and operation counts against counts by hand."""

import numpy as np

from benchmarks.layers.layer_work import attention_work, gcn_work, sage_work
from benchmarks.operators.work import Pattern, Work, aggregation_work, dense_work, sddmm_work, spmm_work

# 3 destinations, 4 sources; sources 0 and 3 used, destination 1 empty.
PATTERN = Pattern.of(np.array([0, 2, 2, 3]), np.array([0, 3, 3]), (3, 4))
STRUCTURE, TRANSPOSED = (4 + 3) * 4, (5 + 3) * 4
# 4 nodes and 5 edges; 3 destinations and 2 sources used.
SQUARE = Pattern.of(np.array([0, 2, 3, 5, 5]), np.array([0, 1, 1, 0, 1]), (4, 4))
SQUARE_STRUCTURE = (5 + 5) * 4


def test_the_pattern_counts_what_is_touched():
    assert PATTERN == Pattern(rows=3, columns=4, nnz=3, touched_rows=2, touched_columns=2)
    assert SQUARE.transpose == Pattern(rows=4, columns=4, nnz=5, touched_rows=2, touched_columns=3)


def test_unweighted_forward_by_hand():
    work = aggregation_work(PATTERN, 8, weighted=False, backward=False)
    output = 3 * 8 * 4
    assert work == Work(STRUCTURE + output + 2 * 32, STRUCTURE + output + 3 * 32, 3 * 8)


def test_weighted_forward_adds_the_weights_and_the_multiplications():
    work = aggregation_work(PATTERN, 8, weighted=True, backward=False)
    weights, output = 3 * 4, 3 * 8 * 4
    assert work == Work(STRUCTURE + weights + output + 2 * 32, STRUCTURE + weights + output + 3 * 32, 2 * 3 * 8)


def test_backward_adds_the_transposed_product_and_the_weight_gradient():
    assert spmm_work(PATTERN.transpose, 8, weighted=False) == Work(
        TRANSPOSED + 4 * 32 + 2 * 32, TRANSPOSED + 4 * 32 + 3 * 32, 3 * 8
    )
    dots = Work(STRUCTURE + 3 * 4 + (3 + 2) * 32, STRUCTURE + 3 * 4 + (3 + 3) * 32, 2 * 3 * 8)
    assert sddmm_work(PATTERN, 8) == dots
    forward, backward = (spmm_work(pattern, 8, weighted=True) for pattern in (PATTERN, PATTERN.transpose))
    assert aggregation_work(PATTERN, 8, weighted=True, backward=True) == forward + backward + dots
    forward, backward = (spmm_work(pattern, 8, weighted=False) for pattern in (PATTERN, PATTERN.transpose))
    assert aggregation_work(PATTERN, 8, weighted=False, backward=True) == forward + backward


def test_a_linear_layer_by_hand():
    x, weight, y, flops = 10 * 3, 3 * 5, 10 * 5, 2 * 10 * 3 * 5
    once = 4 * (x + weight + y)
    assert dense_work(10, 3, 5, backward=False) == Work(once, once, flops)
    assert dense_work(10, 3, 5, backward=True) == Work(3 * once, 3 * once, 3 * flops)
    assert dense_work(10, 3, 5, backward=True, input_gradient=False) == Work(2 * once, 2 * once, 2 * flops)


def test_gat_forward_by_hand():
    out, heads = 6, 2
    # two values per head and node come from source and destination, two more are kept of each row's softmax
    fixed = SQUARE_STRUCTURE + 4 * (4 * heads * 2 + 4 * heads * 2 + 4 * out)
    edges = Work(fixed + 2 * out * 4, fixed + 5 * out * 4, 2 * 5 * out)
    work = attention_work("gat", "dgl", SQUARE, 7, heads, 3, backward=False)
    assert work == edges + dense_work(4, 7, out, backward=False)


def test_transformer_step_by_hand():
    out, heads = 6, 2
    rows, softmax = 4 * out * 4, 4 * heads * 2 * 4

    def edges(keys_and_values, cotangents):
        forward = SQUARE_STRUCTURE + 2 * keys_and_values * out * 4 + rows + rows + softmax
        # read again: everything but the output; then the transposed structure, and for each source the queries and the
        # cotangents of its destinations; written: three gradients
        backward = forward - rows + SQUARE_STRUCTURE + 2 * cotangents * out * 4 + 3 * rows
        return forward + backward

    dense = dense_work(4, 7, out, backward=True)
    expected = Work(edges(2, 3), edges(5, 5), (4 + 8) * 5 * out) + dense + dense + dense
    assert attention_work("transformer", "pyg", SQUARE, 7, heads, 3) == expected


def test_one_projection_moves_less_than_three():
    one, three = (attention_work("transformer", framework, SQUARE, 7, 2, 3) for framework in ("dgl", "pyg"))
    assert one.compulsory < three.compulsory and one.gather < three.gather and one.flops < three.flops


def test_sage_multiplies_first_where_dgl_does():
    dense = dense_work(4, 8, 2, backward=False)
    for framework, width in (("dgl", 2), ("pyg", 8)):
        work = sage_work(framework, SQUARE, (8, 2), backward=False, input_gradient=False)
        assert work == aggregation_work(SQUARE, width, weighted=False, backward=False) + dense + dense


def test_the_first_sage_layer_needs_no_input_gradient():
    dense = dense_work(4, 8, 8, backward=True, input_gradient=False)
    work = sage_work("pyg", SQUARE, (8, 8), backward=True, input_gradient=False)
    assert work == aggregation_work(SQUARE, 8, weighted=False, backward=False) + dense + dense


def test_gcn_aggregates_at_the_narrower_width():
    norms = 2 * 4 * 4
    expected = dense_work(4, 8, 2, backward=False) + aggregation_work(SQUARE, 2, weighted=False, backward=False)
    assert gcn_work(SQUARE, 8, 2, backward=False) == expected + Work(norms, norms, 0)
