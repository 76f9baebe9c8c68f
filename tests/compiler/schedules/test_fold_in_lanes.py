"""Sums and maxima in lanes over rows of any length: as text, against the stage above, as machine code, and what is
refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import compile_program, stage2
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import Var, differ, number, select
from gnn_sparse_backend.compiler.language.folds import folds
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.program import Store
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.lanes import fold_in_lanes
from gnn_sparse_backend.compiler.transforms import split_parts, tile_axis
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from tests.compiler.message_programs import in_passes, small_aggregation
from tests.compiler.structures import complete
from tests.compiler.tvm_text import tvm_text


def program(message="x0", width=1, tiles=None, index_dtype="int32", operands=("column",), **spec):
    described = tuple(Operand(at, (width,) if n == 0 else (1,), "float32") for n, at in enumerate(operands))
    found = AggregateSpec(parse(message), described, (width,), index_dtype=index_dtype, **spec)
    return tile_axis(aggregate(found), "K", tiles or ((width,),))


def continued(whole):
    """The second pass of two."""
    return split_parts(in_passes(whole, "a", "b"))[1]


MAKE = {
    "one_feature": lambda t: program(index_dtype=t),
    "three_features": lambda t: program(width=3, index_dtype=t),
    "two_chunks": lambda t: program(width=5, tiles=((4, 1),), index_dtype=t),
    "weighted": lambda t: program("mul(x0, x1)", operands=("column", "edge"), index_dtype=t),
    "numbered_mean": lambda t: program(
        "mul(x0, x1)", 2, operands=("column", "edge"), numbered=True, reduce="mean", index_dtype=t
    ),
    "continued": lambda t: continued(program("sub(x0, x1)", 2, operands=("column", "row"), index_dtype=t)),
}
EXTREMES = {
    "maximum": lambda t: program(width=3, reduce="max", index_dtype=t),
    "minimum_or_nan": lambda t: program(reduce="min", propagate=True, index_dtype=t),
    "differences": lambda t: program(
        "sub(x0, x1)", 2, operands=("column", "row"), reduce="max", propagate=True, index_dtype=t
    ),
    "sums": lambda t: program("add(x0, x1)", 3, operands=("column", "edge"), reduce="min", index_dtype=t),
    "leaky": lambda t: program("leaky_relu(x0, 0.25)", 3, reduce="max", propagate=True, index_dtype=t),
    "unique": lambda t: program(width=3, reduce="max", keep=("unique",), fill=-1, propagate=True, index_dtype=t),
    "unique_minimum": lambda t: program(reduce="min", keep=("unique",), fill=-1, propagate=True, index_dtype=t),
}


def arguments_of(made, seed, extreme):
    rng = np.random.default_rng(seed)
    found = complete(made, rng, {"num_groups": 3, "n": 40, "num_edges": 9}, most=23)
    if "E" in found:
        found["E"] = rng.permutation(found["nnz"]).astype(found["E"].dtype)
        found["num_edges"] = found["nnz"]
        found["X1"] = (rng.integers(-8, 9, (found["nnz"], 1)) / 4).astype("float32")
    if extreme:  # of few values several are the greatest
        for name in {"X0", "X1"} & set(found):
            found[name] = rng.choice(
                [-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf, np.nan][seed % 2 : 5 + seed], found[name].shape
            ).astype("float32")
    if "D" in found:
        found["D"] = np.diff(found["indptr"]).astype(found["D"].dtype)
    return found


def scheduled(lanes, edges="edges_tile_0"):
    return cpu_schedule(fold_in_lanes(edges, lanes))


# seeds of each type of indices, extremes without and with NaN; with either number of lanes in every other program
@pytest.mark.parametrize(
    "name, lanes, seed",
    [
        (name, lanes, (number + k) % 2 + 1)
        for number, name in enumerate(MAKE | EXTREMES)
        for k, lanes in enumerate((2, 8))
    ],
)
@pytest.mark.short(8)
def test_every_stage_means_the_same(name, lanes, seed):
    made = (MAKE | EXTREMES)[name]("int32" if seed % 2 else "int64")
    arguments = arguments_of(made, seed, name in EXTREMES)
    want = interpret(made, arguments)
    schedule = scheduled(lanes, "edges_tile_0_b" if name == "continued" else "edges_tile_0")
    position = stage2(made, schedule)
    results = [name for name in ("C", "Unique") if name in made.parameter_names]
    for name in results:
        # values are exact quarters: the order of additions does not show
        np.testing.assert_allclose(run_position(position, arguments)[name], want[name], rtol=1e-12)
        np.testing.assert_allclose(run_loops(flatten(position), arguments)[name], want[name], rtol=1e-12)
    kernel = compile_program(made, schedule)
    copies = {n: v if isinstance(v, int) else np.array(v) for n, v in arguments.items()}
    kernel(*(copies[n] for n in made.parameter_names))
    for name in results:
        np.testing.assert_allclose(copies[name], want[name], rtol=1e-6, atol=1e-6)


def test_the_order_of_additions():
    """Full rounds lane by lane, the lanes in halves, then the rest: seen by numbers that absorb one another."""
    made = program()
    big = float(2**24)
    x = np.array([[1], [big], [1], [-big], [1], [1], [1], [1], [1]], "float32")
    out = np.full((1, 1), np.nan, "float32")
    count = len(x)
    kernel = compile_program(made, scheduled(4))
    pointers = [np.array(a, "int32") for a in ([0, 1], [0, count], np.arange(count))]
    kernel(1, 1, count, count, *pointers, x, out)
    lanes = x.reshape(-1)[:8].reshape(2, 4).sum(0, dtype=np.float32)
    halves = lanes[:2] + lanes[2:]
    assert out[0, 0] == np.float32(halves[0] + halves[1]) + x[8, 0]


def of_one_feature(lengths, x, columns, lanes=4):
    """Sums of x[columns], by machine code."""
    nnz, rows = len(columns), len(lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    out = np.full((rows, 1), np.nan, "float32")
    kernel = compile_program(program(), scheduled(lanes))
    groups = np.array([0, rows], "int32")
    kernel(1, rows, len(x), nnz, groups, indptr, np.array(columns, "int32"), np.array(x, "float32").reshape(-1, 1), out)
    return out[:, 0]


def test_what_does_not_fill_a_round_is_added_in_the_first_lanes():
    big = float(2**25)
    (alone,) = of_one_feature([5], [-big, 1, 1, 1, big], range(5))
    assert alone == 3  # behind the lanes' sum, -big + 1 would have been -big


@pytest.mark.parametrize("lanes", [2, 8])
def test_elements_of_the_next_rows_are_not_taken_in(lanes):
    """And a row has the same bits where no row follows, of too few elements for a vector too."""
    rng = np.random.default_rng(lanes)
    x = np.concatenate([rng.standard_normal(20), [np.inf, np.nan]])
    for length in (0, 1, 3, 9, 15):
        row = rng.integers(0, 20, length).tolist()
        (alone,) = of_one_feature([length], x, row, lanes)
        first, poison, last = of_one_feature([length, 20, length], x, [*row, *[20, 21] * 10, *row], lanes)
        assert first == last == alone and np.isnan(poison)
        np.testing.assert_allclose(alone, x[row].sum(), rtol=1e-5, atol=1e-5)


def test_places_that_are_chosen_by_position_stay_within_the_row():
    """A vector of features that is as long as the longest row has nothing to read beyond it."""
    p = ProgramBuilder("ragged")
    rows, length, nnz = p.sizes("m", "n", "nnz")
    I, K = p.dense_fixed("I", rows), p.dense_fixed("K", length)
    J, one = p.dense_variable("J", I, (length, nnz), "indptr"), p.dense_fixed("One", 1)
    A, x, out = p.buffer("A", (I, J), "float32"), p.buffer("x", (K,), "float32"), p.buffer("out", (I,), "float32")
    with p.iterate("rows", (I,), "S", ("i",)) as (i,):
        total = p.local("Total", (one,), "float32")
        with p.iterate("zero", (one,), "S", ("z",)) as (z,):
            total[z] = number(0.0, "float32")
        with p.iterate("sum", (J,), "R", ("j",)) as (j,), p.iterate("add", (one,), "S", ("o",)) as (o,):
            total[o] = total[o] + A[i, j] * x[j]
        with p.iterate("store", (one,), "S", ("s",)) as (s,):
            out[i] = total[s]
    made = p.finish()
    assert "Select" not in tvm_text(stage2(made, scheduled(4, "sum")).function)
    assert "Select" in tvm_text(stage2(program(), scheduled(4)).function)


def test_as_text(file_regression):
    position = stage2(program(width=2), cpu_schedule(fold_in_lanes("edges_tile_0", 4), parallel=False))
    file_regression.check(tvm_text(position.function))


NO_FOLD = "does not fold in the form X = X + term, or that of a product or maximum, into 'P'"


def refused(message, made, name="edges_tile_0", lanes=4):
    with pytest.raises(StageIError, match=message):
        fold_in_lanes(name, lanes)(lower(made))


def test_refusals():
    for lanes in (0, 1, 6):
        refused(f"{lanes} lanes are not a power of two of at least 2", program(), lanes=lanes)
    refused("'spmm' is not nested in another", csr_spmm(4), "spmm")
    refused("'out_0' is not over one reduction axis", program(), "out_0")
    refused("'edges' is not over one reduction axis", small_aggregation(), "edges")
    refused(
        r"does not fold in the form X = X \+ term, or that of a product or maximum, into 'Total_0'",
        program(reduce="max", keep=("number",), numbered=True),
    )
    heads = (Operand("column", (3, 2), "float32"), Operand("edge", (3, 1), "float32"))
    staged = tile_axis(aggregate(AggregateSpec(parse("mul(x0, x1)"), heads, (3, 2))), "K", ((4, 2),))
    refused("'edges' has an init, a condition, local buffers or padding", staged, "edges")


def test_what_depends_on_the_order_is_no_fold():
    """Of equal elements the last, a place beside another result, a result that is overwritten before its place is
    decided.
    """
    p = ProgramBuilder("p")
    K = p.dense_fixed("K", 3)
    S, P, x, y = (
        p.buffer(name, (K,), kind)
        for name, kind in (("S", "float32"), ("P", "int64"), ("x", "float32"), ("y", "float32"))
    )
    k, place, several = Var("k"), Var("j"), number(-2)
    own, at, term, other = S[k], P[k], x[k], y[k]

    def found(*stores):
        return folds([Store(buffer.value, (k,), value) for buffer, value in stores])

    inf = number(float("inf"), "float32")
    number_alone = S, select(term > own, term, own)
    greatest = S, select(differ(term, term), inf - inf, number_alone[1])
    alone = P, select(term > own, place, select(own > term, at, several))
    assert [(fold.buffer, fold.term, fold.neutral) for fold in found(alone, greatest)] == [
        (P.value, place, 0),
        (S.value, term, float("-inf")),
    ]
    assert found((S, select(term < own, term, own)))[0].neutral == float("inf")
    assert found((S, own * term))[0].neutral == 1.0
    for stores in [
        (greatest, alone),
        (alone, number_alone),
        ((P, select(term >= own, place, at)), greatest),
        (alone, (S, select(term < own, term, own))),
        (alone, (S, select(other > own, other, own))),
        (alone, (S, own + term)),
        (alone,),
        ((P, select(other > own, place, select(own > other, at, several))), greatest),
        ((P, select(term > own, place, select(own > term, several, several))), greatest),
        ((P, select(term > own, place, select(own < term, at, several))), greatest),
    ]:
        assert found(*stores) == NO_FOLD, stores
    for value in [
        select(term >= own, term, own),
        select(term > own, own, term),
        select(own > term, own, term),
        own - term,
        term,
        term * own,
        select(differ(other, other), inf - inf, select(term > own, term, own)),
        select(differ(term, term), inf, number_alone[1]),
        select(term > own, other, own),
        (own + term) + own,
    ]:
        assert "into 'S'" in found((S, value)) or found((S, value)) == "takes in a term that depends on a result", value
    assert found((S, own + (term + own))) == "takes in a term that depends on a result"
    assert found(greatest, greatest) == "folds into 'S' twice"
