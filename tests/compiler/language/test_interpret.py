"""The stage I interpreter against SciPy and NumPy, so that the oracle of the stages is itself checked."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import (
    both,
    call,
    cast,
    differ,
    either,
    equal,
    maximum,
    minimum,
    number,
    present,
    select,
)
from gnn_sparse_backend.compiler.language.interpret import interpret
from tests.compiler.programs_under_test import CASES
from tests.compiler.structures import seeds

ONE = number(1, "float32")
drawn = settings(deadline=None, max_examples=15)


def f64(values):
    return np.asarray(values, np.float64)


def csr(a, values, axis="J", rows="m", columns="n"):
    return sp.csr_matrix((f64(values), a[f"{axis}_indices"], a[f"{axis}_indptr"]), (a[rows], a[columns]))


def spmm(a):
    return {"C": csr(a, a["A"]) @ f64(a["B"])}


def ell(a):
    dense = np.zeros((a["m"], a["n"]))
    columns = a["J_indices"].reshape(a["m"], -1)
    rows, slots = np.nonzero(columns >= 0)
    np.add.at(dense, (rows, columns[rows, slots]), f64(a["A"]).reshape(columns.shape)[rows, slots])
    return {"C": dense @ f64(a["B"])}


def bsr(a):
    blocks = np.where(a["Mask"], f64(a["A"]), 0)
    full = sp.bsr_matrix((blocks, a["JO_indices"], a["JO_indptr"]), (2 * a["mb"], 2 * a["nb"]))
    return {"C": full.tocsr()[: a["m"], : a["n"]] @ f64(a["B"])}


def dia(a):
    out = np.zeros((a["m"], a["B"].shape[1]))
    for diagonal, offset in enumerate(a["Offsets"]):
        for i in range(a["m"]):
            if a["Mask"][diagonal, i] and 0 <= i + offset < a["n"]:
                out[i] += f64(a["A"][diagonal, i]) * a["B"][i + offset]
    return {"C": out}


def batched(a):
    return {"C": np.stack([csr(a, values) @ f64(b) for values, b in zip(a["A"], a["B"])])}


def rows_of(a, axis="J"):
    return np.repeat(np.arange(len(a[f"{axis}_indptr"]) - 1), np.diff(a[f"{axis}_indptr"]))


def sddmm(a):
    dots = (f64(a["U"])[rows_of(a)] * a["V"][a["J_indices"]]).sum(1)
    return {"O": a["A"] * dots}


def segments(indptr, values):
    """The sum of each segment of the first axis."""
    values = f64(values)
    return np.array([values[b:e].sum(0) for b, e in itertools.pairwise(indptr)]).reshape(-1, *values.shape[1:])


def segment_sum(a):
    return {"Y": segments(a["J_indptr"], a["X"])}


def row_sum(a):
    return {"Y": csr(a, a["A"]).sum(1).A1}


def scale(a):
    return {"B": f64(a["A"]) * a["R"][rows_of(a)] * a["C"][a["J_indices"]]}


def square_sum(a):
    return {"Y": segments(a["J_indptr"], segments(a["K_indptr"], f64(a["A"]) ** 2))}


def ragged_4d(a):
    return {"Y": np.array([f64(a["X"][b:e]).sum() for b, e in zip(a["L_indptr"], a["L_indptr"][1:])])}


def softmax(a):
    out = np.array(a["A"], np.float64)
    for b, e in zip(a["J_indptr"], a["J_indptr"][1:]):
        if b < e:
            row = np.exp(out[b:e] - out[b:e].max())
            out[b:e] = row / row.sum()
    return {"P": out}


def hypergraph(a):
    incidence = csr(a, np.ones(a["nnz"]), "U", "edges", "vertices")
    return {"Z": incidence.T @ (incidence @ f64(a["X"]))}


def rgms_homogeneous(a):
    out = np.zeros((a["m"], a["W"].shape[2]))
    for i, j, relation in zip(rows_of(a), a["J_indices"], a["Type"]):
        out[i] += f64(a["X"][j]) @ a["W"][relation]
    return {"Y": out}


def rgms_heterogeneous(a):
    out = np.zeros((a["m"], a["W"].shape[2]))
    relation_of_row = rows_of(a, "I")
    for at, j, value in zip(rows_of(a), a["J_indices"], a["A"]):
        out[a["I_indices"][at]] += value * (f64(a["X"][j]) @ a["W"][relation_of_row[at]])
    return {"Y": out}


def csr_to_bsr(a):
    dense = np.zeros((2 * a["mb"], 2 * a["nb"]))
    dense[: a["m"], : a["n"]] = csr(a, a["A"]).toarray()
    blocks = [dense[2 * io : 2 * io + 2, 2 * jo : 2 * jo + 2] for io, jo in zip(rows_of(a, "JO"), a["JO_indices"])]
    return {"B": np.array(blocks).reshape(-1, 2, 2)}


ORACLES = {
    "csr_spmm": spmm,
    "reordered_spmm": spmm,
    "ell_spmm": ell,
    "bsr_spmm": bsr,
    "dia_spmm": dia,
    "batched_spmm": batched,
    "csr_sddmm": sddmm,
    "fused_sddmm": sddmm,
    "segment_sum": segment_sum,
    "csr_row_sum": row_sum,
    "csr_scale": scale,
    "square_sum": square_sum,
    "ragged_sum_4d": ragged_4d,
    "fused_ragged_sum_4d": ragged_4d,
    "sparse_softmax": softmax,
    "hypergraph_convolution": hypergraph,
    "rgms_homogeneous": rgms_homogeneous,
    "rgms_heterogeneous": rgms_heterogeneous,
    "csr_to_bsr": csr_to_bsr,
}


@pytest.mark.short(20)
@pytest.mark.parametrize("name", ORACLES)
@given(seed=seeds)
@drawn
def test_library_programs(name, seed):
    program = CASES[name].make("int32")
    arguments = CASES[name].arguments(program, seed)
    got = interpret(program, arguments)
    for output, want in ORACLES[name](arguments).items():
        np.testing.assert_allclose(got[output], want, rtol=1e-13, atol=1e-13, err_msg=output)


# what programs may say beyond those of the library


def one_row(body, **arguments):
    """Run a body over x in [0, 5) that stores Y[x]."""
    p = ProgramBuilder("tiny")
    X = p.dense_fixed("X", 5)
    A = p.buffer("A", (X,), "float32")
    Y = p.buffer("Y", (X,), arguments.pop("dtype", "float32"))
    with p.iterate("it", (X,), "S") as (x,):
        Y[x] = body(x, A)
    given = {"A": np.array([0.5, 1, 2, 3, -4]), "Y": np.zeros(5)} | arguments
    return interpret(p.finish(), given)["Y"]


@pytest.mark.parametrize(
    "name, function",
    [
        ("exp", np.exp),
        ("log", np.log),
        ("sqrt", np.sqrt),
        ("tanh", np.tanh),
        ("abs", np.abs),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v))),
    ],
)
def test_functions(name, function):
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(one_row(lambda x, A: call(name, A[x])), function(np.array([0.5, 1, 2, 3, -4])))


@pytest.mark.parametrize(
    "build, want",
    [
        (lambda x, A: (x - 2) // 2, [-1, -1, 0, 0, 1]),
        (lambda x, A: (x - 2) % 3, [1, 2, 0, 1, 2]),
        (lambda x, A: minimum(x, 2) * maximum(x, 3), [0, 3, 6, 6, 8]),
        (lambda x, A: select(x < 2, 10, select(equal(x, 3), 20, 30)), [10, 10, 30, 20, 30]),
        (lambda x, A: select(both(x > 0, either(x <= 1, differ(x, 3))), 1, 0), [0, 1, 1, 0, 1]),
        (lambda x, A: cast("int64", A[x]), [0, 1, 2, 3, -4]),  # towards zero
        (lambda x, A: cast("int64", cast("int8", x * 100)), [0, 100, -56, 44, -112]),  # wraps
        (lambda x, A: cast("int64", cast("bool", x)), [0, 1, 1, 1, 1]),
        (lambda x, A: select(x >= 3, 1, 0) - select(x < 1, 1, 0), [-1, 0, 0, 1, 1]),
    ],
)
def test_operators(build, want):
    np.testing.assert_array_equal(one_row(build, dtype="int64"), want)


def test_only_the_chosen_side_of_a_select_is_evaluated():
    # the other side is out of range, or would divide by zero
    np.testing.assert_array_equal(one_row(lambda x, A: select(x < 3, A[x + 2], -1.0)), [2, 3, -4, -1, -1])
    np.testing.assert_array_equal(one_row(lambda x, A: select(equal(x, 0), 0, 6 // x), dtype="int64"), [0, 6, 3, 2, 1])


def test_the_second_condition_is_evaluated_only_where_the_first_does_not_decide():
    np.testing.assert_array_equal(one_row(lambda x, A: select(both(x > 0, A[x - 1] > 1), ONE, 0.0)), [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(one_row(lambda x, A: select(either(x < 1, A[x - 1] > 1), ONE, 0.0)), [1, 0, 0, 1, 1])


def test_dense_coordinate_out_of_range_is_an_error():
    with pytest.raises(StageIError, match="buffer 'A': coordinate 5 lies outside axis 'X' of length 5"):
        one_row(lambda x, A: A[x + 1])
    with pytest.raises(StageIError, match="coordinate -1 lies outside"):
        one_row(lambda x, A: A[x - 1])


def test_argument_of_another_shape():
    with pytest.raises(StageIError, match=r"buffer 'A' is stored with shape \(5,\), got \(4,\)"):
        one_row(lambda x, A: A[x], A=np.zeros(4))


def lookup(write=False, present_only=False):
    """Y[c] = A[r, c], by looking up every coordinate, beyond the ends too."""
    p = ProgramBuilder("lookup")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("ptr", "idx"), sorted=False, unique=False)
    R, N = p.dense_fixed("R", 4), p.dense_fixed("N", 6)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (R, N), "float32")
    with p.iterate("it", (R, N), "SS", ("r", "c")) as (r, c):
        if write:
            A[r - 1, c - 1] = Y[r, c]
        else:
            Y[r, c] = select(present(A[r - 1, c - 1]), ONE, 0.0) if present_only else A[r - 1, c - 1]
    return p.finish()


STORED = {
    "m": 2,
    "n": 4,
    "nnz": 5,
    "ptr": [0, 3, 5],
    "idx": [3, 0, 3, 1, 2],
    "A": [10.0, 11, 12, 13, 14],
    "Y": np.full((4, 6), 7.0),
}


def dense_of(values):
    want = np.zeros((4, 6))
    # rows and columns are looked up with -1 added; the first of two elements at one coordinate is found
    want[1, 1 + 3], want[1, 1 + 0], want[2, 1 + 1], want[2, 1 + 2] = values
    return want


def test_absent_coordinates_read_as_zero():
    np.testing.assert_array_equal(interpret(lookup(), STORED)["Y"], dense_of([10, 11, 13, 14]))
    np.testing.assert_array_equal(interpret(lookup(present_only=True), STORED)["Y"], dense_of([1, 1, 1, 1]))


def test_stores_to_absent_coordinates_do_nothing():
    got = interpret(lookup(write=True), STORED)["A"]
    np.testing.assert_array_equal(got, [7, 7, 12, 7, 7])


def test_visited_elements_at_one_coordinate_are_apart():
    p = ProgramBuilder("twice")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("ptr", "idx"), sorted=False, unique=False)
    A, B = p.buffer("A", (I, J), "float32"), p.buffer("B", (I, J), "float32")
    with p.iterate("it", (I, J), "SS") as (i, j):
        B[i, j] = A[i, j] * 2
    got = interpret(p.finish(), {k: v for k, v in STORED.items() if k != "Y"} | {"B": np.zeros(5)})
    np.testing.assert_array_equal(got["B"], [20, 22, 24, 26, 28])


def padded(kinds="SS"):
    p = ProgramBuilder("padded")
    I = p.dense_fixed("I", 2)
    J = p.sparse_fixed("J", I, (3, 2), "idx", padded=True)
    K = p.dense_fixed("K", 2)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I, p.dense_fixed("N", 3)), "float32")
    if kinds == "SS":
        with p.iterate("it", (I, J), "SS") as (i, j):
            Y[i, j] = A[i, j]
    else:
        with p.iterate("it", (I, J, K), "SSR") as (i, j, _k):
            with p.init():
                Y[i, j] = 0
            Y[i, j] = Y[i, j] + A[i, j]
    return p.finish()


def test_padded_slots_are_neither_read_nor_written_nor_initialised():
    arguments = {"idx": [2, -1, -1, 0], "A": [1.0, np.nan, np.inf, 2], "Y": np.full((2, 3), 9.0)}
    np.testing.assert_array_equal(interpret(padded(), arguments)["Y"], [[9, 9, 1], [2, 9, 9]])
    np.testing.assert_array_equal(interpret(padded("SSR"), arguments)["Y"], [[9, 9, 2], [4, 9, 9]])


def test_init_runs_where_the_reduction_is_empty_and_where_the_condition_fails():
    p = ProgramBuilder("empty")
    I = p.dense_fixed("I", 3)
    J = p.dense_variable("J", I, (4, 3), "ptr")
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("it", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 5
        p.where(i > 0)
        Y[i] = Y[i] + A[i, j]
    got = interpret(p.finish(), {"ptr": [0, 1, 1, 3], "A": [1.0, 2, 3], "Y": np.full(3, np.nan)})
    np.testing.assert_array_equal(got["Y"], [5, 5, 10])


def test_locals_start_anew_at_every_element():
    p = ProgramBuilder("fresh")
    I = p.dense_fixed("I", 2)
    Y = p.buffer("Y", (I,), "float32")
    with p.iterate("it", (I,), "S") as (i,):
        S = p.local("S", (), "float32")
        Y[i] = S[()]  # nothing has been stored in it yet
        S[()] = 1
    assert np.isnan(interpret(p.finish(), {"Y": np.zeros(2)})["Y"]).all()


def test_arguments_are_left_alone():
    arguments = {
        "m": 1,
        "n": 2,
        "nnz": 1,
        "J_indptr": np.array([0, 1]),
        "J_indices": np.array([1]),
        "A": np.ones(1),
        "B": np.ones((2, 3)),
        "C": np.full((1, 3), 9.0),
    }
    got = interpret(CASES["csr_spmm"].make("int32"), arguments)
    assert (arguments["C"] == 9).all() and (got["C"] == 1).all()
