"""What each transformation refuses, and the reason that it gives."""

from dataclasses import replace

import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import cast, select
from gnn_sparse_backend.compiler.language.program import Buffer
from gnn_sparse_backend.compiler.library.products import csr_sddmm, dia_spmm
from gnn_sparse_backend.compiler.library.reductions import square_sum
from gnn_sparse_backend.compiler.transforms import (
    decompose_format,
    group_axis,
    hoist_axis,
    reduce_in_lanes,
    sparse_fuse,
    sparse_reorder,
    tile_axis,
)
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule
from gnn_sparse_backend.compiler.transforms.dense_axes.lanes_together import reduce_together
from gnn_sparse_backend.compiler.transforms.format_rules import ell_rule
from tests.compiler.transforms.tiny_programs import dot, heads, local_sum, matrix, spmm

SIX = ((6,),)
HALVES = ((3,), (3,))


def refused(message):
    return pytest.raises(StageIError, match=message)


# sparse_reorder, sparse_fuse, group_axis


def test_reorder():
    with refused(r"\('I', 'J'\) is not a permutation of the axes \('I', 'J', 'K'\) of 'mul'"):
        sparse_reorder(spmm(), "mul", ("I", "J"))
    with refused("axis 'J' depends on 'I' and cannot come before it"):
        sparse_reorder(spmm(), "mul", ("J", "I", "K"))
    with refused("no iteration 'sum'; it has mul"):
        sparse_reorder(spmm(), "sum", ("I", "J", "K"))
    fused = sparse_fuse(csr_sddmm(4), "sddmm", ("I", "J"))
    with refused(r"fused axes \['I', 'J'\] are not consecutive"):
        sparse_reorder(fused, "sddmm", ("I", "K", "J"))
    with refused("init cannot run before the loop fused over"):
        sparse_reorder(fused, "sddmm", ("K", "I", "J"))


def test_fuse():
    with refused("iteration 'mul' does not visit axis 'N'; it visits I, J, K"):
        sparse_fuse(spmm(), "mul", ("I", "N"))
    with refused("init cannot run in a loop fused over spatial and reduction axes"):
        sparse_fuse(spmm(), "mul", ("I", "J"))
    with refused(r"fused axes \['J', 'K'\] must be one tree, from its root down"):
        sparse_fuse(spmm(), "mul", ("J", "K"))
    with refused("axis 'I' is fused already"):
        sparse_fuse(sparse_fuse(csr_sddmm(4), "sddmm", ("I", "J")), "sddmm", ("I", "J"))


def test_group():
    with refused("axis 'J' is not a dense root"):
        group_axis(spmm(), "J")
    with refused("axis 'I' is fused; group before fusing"):
        group_axis(sparse_fuse(csr_sddmm(4), "sddmm", ("I", "J")), "I")
    with refused("the coordinate 'i' of axis 'I' is used as a value"):
        group_axis(dia_spmm(4), "I")
    with refused("buffer 'B' is indexed along 'N' by Var"):
        group_axis(spmm(), "N")


# tile_axis


def test_tile_axis_that_cannot_be_cut():
    with refused("axis 'I' is not dense-fixed with a static length"):
        tile_axis(local_sum(), "I", SIX)
    with refused("axis 'J' is not dense-fixed"):
        tile_axis(local_sum(), "J", SIX)
    for tiles in (((4,),), ((6, 0),), ((7, -1),)):
        with refused("do not add up to the length 6 of axis 'K'"):
            tile_axis(local_sum(), "K", tiles)


def test_tile_axis_where_it_is_not_last_and_spatial():
    with refused("axis 'K' must be the last and a spatial axis of 'sum'"):
        tile_axis(sparse_reorder(local_sum(), "sum", ("K", "J")), "K", SIX)
    with refused("axis 'K' must be the last and a spatial axis of 'sum'"):
        tile_axis(dot(width=6), "K", SIX)
    with refused("iteration 'mul' visits axis 'K' outside any enclosing iteration"):
        tile_axis(spmm(), "K", ((4,), (2,)))


def test_tile_axis_over_nested_iterations():
    def body(p, i, J, K, B, C, S):
        with p.iterate("outer", (K,), "S") as (k,):
            with p.iterate("inner", (J,), "R") as (j,):
                C[i, k] = C[i, k] + B[j, k]

    with refused("iteration 'outer' holds iterations under axis 'K'"):
        tile_axis(local_sum(body), "K", SIX)


def test_tile_axis_over_locals():
    def body(p, i, J, K, B, C, S):
        with p.iterate("out", (K,), "S") as (k,):
            X = p.local("X", (), "float32")
            X[()] = B[0, k]
            C[i, k] = X[()]

    with refused("iteration 'out' over axis 'K' has local buffers of its own"):
        tile_axis(local_sum(body), "K", SIX)


def test_tile_axis_of_a_temporary():
    program = local_sum()
    temporary = Buffer("T", (program.axis("K"),), "float32", "temporary")
    with refused("a temporary buffer stands on axis 'K'"):
        tile_axis(replace(program, buffers=(*program.buffers, temporary)), "K", SIX)


def reads_the_neighbour(p, i, J, K, B, C, S):
    with p.iterate("fill", (K,), "S", ("a",)) as (a,):
        S[a] = B[0, a]
    with p.iterate("shift", (K,), "S", ("b",)) as (b,):
        C[i, b] = S[select(b < 1, 0, b - 1)]


def reads_the_neighbour_outside(p, i, J, K, B, C, S):
    with p.iterate("fill", (K,), "S", ("a",)) as (a,):
        C[i, a] = B[0, a]
    with p.iterate("shift", (K,), "S", ("b",)) as (b,):
        C[i, b] = C[i, select(b > 4, b, b + 1)]


def shares_with_a_store(p, i, J, K, B, C, S):
    with p.iterate("fill", (K,), "S") as (k,):
        C[i, k] = B[0, k]
    C[i, 0] = C[i, 5]


def overwrites_what_was_used(p, i, J, K, B, C, S):
    X = p.local("X", (), "float32")
    X[()] = 2
    with p.iterate("fill", (K,), "S") as (k,):
        C[i, k] = B[0, k] * X[()]
    X[()] = 3


def stores_one_place(p, i, J, K, B, C, S):
    with p.iterate("fill", (K,), "S") as (k,):
        C[i, 0] = C[i, 0] + B[0, k]


@pytest.mark.parametrize(
    "transform", [lambda p: tile_axis(p, "K", HALVES), lambda p: hoist_axis(p, "K")], ids=["tile", "hoist"]
)
@pytest.mark.parametrize(
    "body, buffer", [(reads_the_neighbour, "S"), (reads_the_neighbour_outside, "C"), (stores_one_place, "C")]
)
def test_elements_that_see_each_other(transform, body, buffer):
    with refused(
        f"buffer '{buffer}' is stored to in iteration 'rows' and not always indexed by the iterator of axis 'K'"
    ):
        transform(local_sum(body))


@pytest.mark.parametrize("body, buffer", [(shares_with_a_store, "C"), (overwrites_what_was_used, "X")])
def test_tiles_beside_a_statement_that_shares_a_buffer(body, buffer):
    with refused(
        f"a statement of iteration 'rows' that does not visit axis 'K' shares buffer '{buffer}' with those that do"
    ):
        tile_axis(local_sum(body), "K", HALVES)


# hoist_axis


def test_hoist_axis():
    with refused("axis 'J' is not dense-fixed"):
        hoist_axis(local_sum(), "J")
    with refused("no iteration holds iterations over axis 'N'"):
        hoist_axis(local_sum(), "N")
    with refused("'store to C' in iteration 'rows' does not visit axis 'K'"):
        hoist_axis(local_sum(shares_with_a_store), "K")
    with refused("iteration 'sum' does not visit axis 'K' as a plain spatial axis"):
        hoist_axis(replace_store(dot()), "K")


def replace_store(program):
    """The dot product without the store behind it."""
    (rows,) = program.iterations
    return replace(program, iterations=(replace(rows, body=rows.body[:1]),))


def test_hoist_axis_would_lose_a_condition():
    def body(p, i, J, K, B, C, S):
        with p.iterate("fill", (K,), "S") as (k,):
            p.where(k < 3)
            C[i, k] = B[0, k]

    with refused("iteration 'fill' would lose its condition"):
        hoist_axis(local_sum(body), "K")


# reduce_in_lanes


@pytest.mark.parametrize("lanes", [0, 3, 16, -2])
def test_number_of_lanes(lanes):
    with refused(f"{lanes} lanes are not a power of two of at most 11, the axis's length"):
        reduce_in_lanes(dot(), "sum", lanes)


@pytest.mark.parametrize(
    "program, message",
    [
        (lambda: dot(width=None), "is not over one static dense reduction axis"),
        (lambda: dot(start=1.0), "does not start from zero, which every lane would add again"),
        (lambda: dot(term=lambda d, u, v: d[()] * u), r"does not add to 'D' in the form X = X \+ term"),
        (lambda: dot(term=lambda d, u, v: u * v), r"does not add to 'D' in the form X = X \+ term"),
        (lambda: dot(term=lambda d, u, v: u * v + d[()]), r"does not add to 'D' in the form X = X \+ term"),
        (lambda: dot(term=lambda d, u, v: d[()] + u * d[()]), "adds a term that depends on 'D' itself"),
        (lambda: dot(where=lambda k: k < 5), "has a condition or local buffers"),
    ],
)
def test_sum_that_lanes_would_get_wrong(program, message):
    with refused(message):
        reduce_in_lanes(program(), "sum", 4)


def test_lanes_of_other_iterations():
    with refused("is not nested in another, so its lanes would live nowhere"):
        reduce_in_lanes(spmm(), "mul", 4)
    with refused("is not over one static dense reduction axis"):
        reduce_in_lanes(local_sum(), "sum", 4)
    with refused("is not over one static dense reduction axis"):
        reduce_in_lanes(local_sum(), "out", 4)


# reduce_together


@pytest.mark.parametrize("lanes", [0, 1, 3, 16, -2])
def test_lanes_that_leave_a_rest(lanes):
    with refused(f"{lanes} lanes are no power of two that divides 8, the axis's length"):
        reduce_together(heads(), "sum", lanes)


def _alone(add, D, Y, i, h, p):
    Y[i, h] = 1.0
    add()


def _of_another(add, D, Y, i, h, p):
    p.local("E", (), "float32")
    add()
    Y[i, h] = D[()]


@pytest.mark.parametrize(
    "program, message",
    [
        (lambda: dot(width=8), "is in 'rows', which is not nested"),
        (lambda: heads(where=lambda h: h < 2), "is in 'heads', which is not over one static dense spatial axis"),
        (lambda: heads(kind="R"), "is in 'heads', which is not over one static dense spatial axis"),
        (lambda: heads(_alone), "is not followed by stores alone in 'heads'"),
        (lambda: heads(_of_another), "does not add to the one number that 'heads' has for itself"),
    ],
)
def test_sums_that_are_no_neighbours(program, message):
    with refused(message):
        reduce_together(program(), "sum", 4)


# decompose_format


def test_rules_that_do_not_fit():
    program = spmm()
    good = ell_rule(program, 2)
    with refused("decompose_format: no rules"):
        decompose_format(program, [])
    with refused("all rules must rewrite the same buffers"):
        decompose_format(program, [good, replace(good, name="other", buffers=("B",))])
    with refused("rule 'ell': there is no axis 'Q'"):
        decompose_format(program, [replace(good, axes_after=("I_ell", "Q"))])
    with refused(r"axis_map must take \('I', 'J'\) to each of \('I_ell', 'J_ell'\) once"):
        decompose_format(program, [replace(good, axis_map={"I": ("I_ell",)})])
    with refused("buffer 'B' does not stand on the axes"):
        decompose_format(program, [replace(good, buffers=("B",))])
    with refused("has no buffer 'Z'"):
        decompose_format(program, [replace(good, buffers=("Z",))])
    with refused("the name 'J_ell' is used 2 times"):
        decompose_format(program, [good, ell_rule(program, 4)])


def test_index_maps_that_are_not_inverse():
    program = spmm()
    good = bsr_rule(program, 2)
    with refused(
        r"rule 'bsr': index_map takes \(0, 1\) to \(0, 0, 0, 1\), and inverse_index_map takes that to \(0, 0\)"
    ):
        decompose_format(program, [replace(good, inverse_index_map=lambda io, jo, ii, ji: (io * 2 + ii, jo * 2))])
    with refused(r"index_map takes \(2, 0\) to \(0, 0, 2, 0\), which lies outside axis 'II_bsr'"):
        decompose_format(program, [replace(good, index_map=lambda i, j: (0, j // 2, i, j % 2))])
    with refused("index_map gives 2 coordinates for the 4 axes_after"):
        decompose_format(program, [replace(good, index_map=lambda i, j: (i, j))])
    with refused("inverse_index_map gives 1 coordinates for the 2 axes_before"):
        decompose_format(program, [replace(good, inverse_index_map=lambda io, jo, ii, ji: (io,))])
    with refused("index_map gives a coordinate of type bool, not int64"):
        decompose_format(program, [replace(good, index_map=lambda i, j: ((i < 2), j, i, j))])
    with refused("index_map is not made of integer arithmetic: Cast"):
        decompose_format(program, [replace(good, index_map=lambda i, j: (cast("int64", cast("int32", i)), j, i, j))])


def test_iterations_that_cannot_be_decomposed():
    fused = sparse_fuse(replace_init(csr_sddmm(4)), "sddmm", ("I", "J"))
    with refused("iteration 'sddmm' is fused; decompose first"):
        decompose_format(fused, [ell_rule(fused, 2)])
    program = square_sum()
    with refused("axis 'K' stands before its parent 'J'"):
        decompose_format(program, [ell_rule(program, 2)])


def replace_init(program):
    (it,) = program.iterations
    return replace(program, iterations=(replace(it, init=()),))


def written_first(reads=False):
    p = ProgramBuilder("written_first")
    I, J = matrix(p)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("write", (I, J), "SS", ("a", "b")) as (a, b):
        A[a, b] = A[a, b] * 2 if reads else 2
    with p.iterate("read", (I, J), "SR") as (i, j):
        Y[i] = Y[i] + A[i, j]
    return p.finish()


@pytest.mark.parametrize("reads", [False, True])
def test_values_that_the_program_itself_computes(reads):
    # a copy at the beginning would be of what was there before
    program = written_first(reads)
    with refused("iteration 'write' writes a buffer that is to be rewritten"):
        decompose_format(program, [ell_rule(program, 2, buffers=("A",))])
    with refused("rules that rewrite no buffers have nothing to copy; pass copies=False"):
        decompose_format(program, [ell_rule(program, 2)])


def test_reads_by_other_indices_than_the_iterators():
    p = ProgramBuilder("shifted")
    I, J = matrix(p)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("read", (I, J), "SR") as (i, j):
        Y[i] = Y[i] + A[i, j + 1]
    program = p.finish()
    with refused("'read' reads 'A' by other indices than its iterators"):
        decompose_format(program, [ell_rule(program, 2)])


def test_copies_of_repeated_coordinates():
    program = spmm(unique=False)
    with refused(
        "coordinates of axis 'J' may repeat, and a copy would find only one of them; pass copies=False and fill A_ell "
        "from the format's value_position"
    ):
        decompose_format(program, [ell_rule(program, 2)])
    with refused("fill A_bsr, mask_bsr from"):
        decompose_format(program, [bsr_rule(program, 2)])
    without = decompose_format(program, [ell_rule(program, 2)], copies=False)
    assert [it.name for it in without.iterations] == ["mul_init", "mul_ell"]
    assert without.parameter_names == ("m", "n", "m_ell", "indices_ell", "B", "C", "A_ell")


def test_iteration_that_does_not_visit_the_old_axes():
    p = ProgramBuilder("element")
    I, J = matrix(p)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("read", (I,), "S") as (i,):
        Y[i] = A[i, 0]
    program = p.finish()
    with refused(r"iteration 'read' does not visit the axes \('I', 'J'\)"):
        decompose_format(program, [ell_rule(program, 2)])


def test_rule_on_an_axis_that_is_not_there():
    with refused("has no axis 'Z'; it has I, J, N, K"):
        ell_rule(spmm(), 2, columns="Z")
