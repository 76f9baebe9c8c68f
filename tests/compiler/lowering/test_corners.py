"""What the library's programs do not do: each program by every stage, against the interpreter of stage I.

The interpreters of stage II and III refuse to read or write outside an array, so an access that is not guarded shows.
"""

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import both, call, cast, differ, either, equal, number, present, select
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.position.validate import validate_loops, validate_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.shared.decompose import decompose_reductions

ONE = number(1, "float32")


def agree(program, **given):
    """Run `program` by every stage; gives what stage I says of it."""
    arguments = {}
    for name in program.parameter_names:
        value = given.pop(name)
        arguments[name] = value if isinstance(value, int) else np.array(value)
    for axis in program.axes:
        for array in filter(None, (axis.indptr, axis.indices)):
            arguments[array] = arguments[array].astype(axis.index_dtype)
    for buffer in program.parameters:
        arguments[buffer.name] = arguments[buffer.name].astype(buffer.dtype)
    assert not given
    want = interpret(program, arguments)
    stage2 = decompose_reductions()(lower(program))
    validate_position(stage2)
    stage3 = flatten(stage2)
    validate_loops(stage3)
    results = {"II": run_position(stage2, arguments), "III": run_loops(stage3, arguments)}
    for schedule in (cpu_schedule(parallel=False, vectorize=False), cpu_schedule()):
        copies = {n: v if isinstance(v, int) else v.copy() for n, v in arguments.items()}
        compile_program(program, schedule)(*(copies[n] for n in program.parameter_names))
        results[repr(schedule)] = copies
    for stage, got in results.items():
        for buffer in program.parameters:
            np.testing.assert_allclose(
                got[buffer.name], want[buffer.name], rtol=1e-6, err_msg=f"{buffer.name} by {stage}"
            )
    return want


def csr(p, *, sorted=True, unique=True, rows="m", columns="n", index_dtype="int32"):
    m, n, nnz = p.sizes(rows, columns, "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("ptr", "idx"), index_dtype, sorted=sorted, unique=unique)
    return I, J


CSR = {"m": 3, "n": 4, "nnz": 4, "ptr": [0, 2, 2, 4], "idx": [1, 3, 0, 2], "A": [1, 2, 3, 4]}


# padding


def ell(p):
    m, n = p.sizes("m", "n")
    I = p.dense_fixed("I", m)
    J = p.sparse_fixed("J", I, (n, 2), "idx", padded=True)
    return I, J, p.dense_fixed("N", n), p.dense_fixed("K", 3)


def test_padded_slots_are_not_initialised():
    p = ProgramBuilder("padded_sddmm")
    I, J, N, K = ell(p)
    O, V = p.buffer("O", (I, J), "float32"), p.buffer("V", (N, K), "float32")
    with p.iterate("it", (I, J, K), "SSR") as (i, j, k):
        with p.init():
            O[i, j] = 0
        O[i, j] = O[i, j] + V[j, k]
    got = agree(p.finish(), m=2, n=3, idx=[2, 0, 1, -1], O=np.full((4,), 9), V=np.arange(9).reshape(3, 3))
    assert got["O"][3] == 9


def test_initial_values_do_not_go_where_padding_points():
    p = ProgramBuilder("padded_scatter")
    I, J, N, K = ell(p)
    Y, V = p.buffer("Y", (I, N), "float32"), p.buffer("V", (N, K), "float32")
    with p.iterate("it", (I, J, K), "SSR") as (i, j, k):
        with p.init():
            Y[i, j] = 0
        Y[i, j] = Y[i, j] + V[j, k]
    # the row before ends where the coordinate -1 of the second row would lie
    got = agree(p.finish(), m=2, n=3, idx=[2, 0, 1, -1], Y=np.full((2, 3), 9), V=np.arange(9).reshape(3, 3))
    np.testing.assert_array_equal(got["Y"], [[3, 9, 21], [9, 12, 9]])


def test_initial_values_of_padded_slots_behind_a_reduction():
    p = ProgramBuilder("padded_behind")
    I, J, N, K = ell(p)
    Y, V = p.buffer("Y", (I, N), "float32"), p.buffer("V", (N, K), "float32")
    with p.iterate("it", (K, I, J), "RSS") as (k, i, j):
        with p.init():
            Y[i, j] = 0
        Y[i, j] = Y[i, j] + V[j, k]
    agree(p.finish(), m=2, n=3, idx=[2, 0, 1, -1], Y=np.full((2, 3), 9), V=np.arange(9).reshape(3, 3))


def test_fused_padded_rows():
    p = ProgramBuilder("fused_ell")
    I, J, N, K = ell(p)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I, N), "float32")
    with p.iterate("it", (I, J), "SS", fused=((I, J),)) as (i, j):
        Y[i, j] = A[i, j]
    assert K.length == 3
    got = agree(p.finish(), m=2, n=3, idx=[2, -1, 1, 0], A=[1, np.nan, 3, 4], Y=np.full((2, 3), 9))
    np.testing.assert_array_equal(got["Y"], [[9, 9, 1], [4, 3, 9]])


# look-ups


@pytest.mark.parametrize("sorted", [True, False])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_lookup_of_every_coordinate(sorted, index_dtype):
    p = ProgramBuilder("lookup")
    I, J = csr(p, sorted=sorted, index_dtype=index_dtype)
    R, N = p.dense_fixed("R", 5), p.dense_fixed("S", 6)
    A, Y, There = p.buffer("A", (I, J), "float32"), p.buffer("Y", (R, N), "float32"), p.buffer("There", (R, N), "uint8")
    with p.iterate("it", (R, N), "SS", ("r", "c")) as (r, c):
        Y[r, c] = A[r - 1, c - 1]
        There[r, c] = select(present(A[r - 1, c - 1]), 1, 0)
    idx = [1, 3, 0, 2] if sorted else [3, 1, 2, 0]
    got = agree(p.finish(), **CSR | {"idx": idx}, Y=np.full((5, 6), 9), There=np.full((5, 6), 9))
    want = np.zeros((5, 6))
    want[1, [2, 4]] = [1, 2] if sorted else [2, 1]
    want[3, [1, 3]] = [3, 4] if sorted else [4, 3]
    np.testing.assert_array_equal(got["Y"], want)
    np.testing.assert_array_equal(got["There"], want > 0)


def test_lookup_finds_the_first_of_two():
    p = ProgramBuilder("first_of_two")
    I, J = csr(p, sorted=False, unique=False)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("it", (I,), "S") as (i,):
        Y[i] = A[i, 1]
    got = agree(p.finish(), **CSR | {"idx": [1, 1, 0, 1]}, Y=np.zeros(3))
    np.testing.assert_array_equal(got["Y"], [1, 0, 4])


def test_lookup_through_two_sparse_axes():
    p = ProgramBuilder("csf_lookup")
    I, J = csr(p)
    depth, nnz_k = p.sizes("depth", "nnz_k")
    K = p.sparse_variable("K", J, (depth, nnz_k), ("kptr", "kidx"))
    A = p.buffer("A", (I, J, K), "float32")
    R, S, T = (p.dense_fixed(name, 5) for name in "RST")
    Y = p.buffer("Y", (R, S, T), "float32")
    with p.iterate("it", (R, S, T), "SSS") as (r, s, t):
        Y[r, s, t] = A[r - 1, s - 1, t - 1]
    arguments = CSR | {"depth": 3, "nnz_k": 5, "kptr": [0, 2, 2, 3, 5], "kidx": [0, 2, 1, 0, 1], "A": [1, 2, 3, 4, 5]}
    got = agree(p.finish(), **arguments, Y=np.full((5, 5, 5), 9))
    want = np.zeros((5, 5, 5))
    for at, value in zip([(0, 1, 0), (0, 1, 2), (2, 0, 1), (2, 2, 0), (2, 2, 1)], [1, 2, 3, 4, 5]):
        want[tuple(np.array(at) + 1)] = value
    np.testing.assert_array_equal(got["Y"], want)


def test_lookup_below_a_ragged_axis():
    """Behind the end of a ragged row nothing is stored, though the next row's elements lie there."""
    p = ProgramBuilder("ragged_lookup")
    m, longest, nnz_r, n, nnz = p.sizes("m", "longest", "nnz_r", "n", "nnz")
    I = p.dense_fixed("I", m)
    R = p.dense_variable("R", I, (longest, nnz_r), "rptr")
    J = p.sparse_variable("J", R, (n, nnz), ("ptr", "idx"))
    A = p.buffer("A", (I, R, J), "float32")
    S = p.dense_fixed("S", 5)
    Y = p.buffer("Y", (I, S), "float32")
    with p.iterate("it", (I, S), "SS") as (i, s):
        Y[i, s] = A[i, s - 1, 0]
    got = agree(
        p.finish(),
        m=2,
        longest=2,
        nnz_r=3,
        n=1,
        nnz=3,
        rptr=[0, 1, 3],
        ptr=[0, 1, 2, 3],
        idx=[0, 0, 0],
        A=[1, 2, 3],
        Y=np.full((2, 5), 9),
    )
    np.testing.assert_array_equal(got["Y"], [[0, 1, 0, 0, 0], [0, 2, 3, 0, 0]])


def test_store_to_looked_up_coordinates():
    p = ProgramBuilder("scatter")
    I, J = csr(p)
    X = p.dense_fixed("X", 6)
    A, V = p.buffer("A", (I, J), "float32"), p.buffer("V", (X,), "float32")
    with p.iterate("it", (I, X), "SS") as (i, x):
        A[i, x - 1] = A[i, x - 1] + V[x]
    got = agree(p.finish(), **CSR, V=np.arange(6) * 10)
    np.testing.assert_array_equal(got["A"], [21, 42, 13, 34])


def test_search_beside_a_reduction():
    """Two matrices of different structure: a reduction whose every step searches."""
    p = ProgramBuilder("inner_product")
    I, J = csr(p)
    L = p.sparse_variable("L", I, (J.length, p.size("nnz_l")), ("lptr", "lidx"))
    A, B, Y = p.buffer("A", (I, J), "float32"), p.buffer("B", (I, L), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("it", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 0
        Y[i] = Y[i] + A[i, j] * B[i, j]
    got = agree(
        p.finish(),
        **CSR,
        nnz_l=5,
        lptr=[0, 3, 4, 5],
        lidx=[0, 1, 3, 0, 2],
        B=[1, 10, 100, 7, 1000],
        Y=np.full(3, np.nan),
    )
    np.testing.assert_array_equal(got["Y"], [210, 0, 4000])


# what is evaluated only where it is wanted


def lazy(build, **given):
    p = ProgramBuilder("lazy")
    I, J = csr(p)
    X, Q = p.dense_fixed("X", 6), p.dense_fixed("Q", 3)
    A, Column = p.buffer("A", (I, J), "float32"), p.buffer("Column", (Q,), "int32")
    Y = p.buffer("Y", (X,), "float32")
    with p.iterate("it", (X,), "S") as (x,):
        build(p, x, A, Column, Y)
    return agree(p.finish(), **CSR, Column=[1, 3, 2], Y=np.full(6, 9))["Y"]


def test_lookup_on_one_side_of_a_select():
    # the coordinate itself cannot be read on the other side
    def body(p, x, A, Column, Y):
        Y[x] = select(x < 3, A[0, Column[x]], -1.0)

    np.testing.assert_array_equal(lazy(body), [1, 2, 0, -1, -1, -1])


def test_lookup_on_the_other_side_of_a_select():
    def body(p, x, A, Column, Y):
        Y[x] = select(x >= 3, -1.0, select(x < 1, A[0, Column[x]], A[2, Column[x]]))

    np.testing.assert_array_equal(lazy(body), [1, 0, 4, -1, -1, -1])


def test_load_behind_a_condition_that_decides():
    def body(p, x, A, Column, Y):
        Y[x] = select(both(x < 3, differ(Column[x], 3)), ONE, 0.0) + select(
            either(x >= 3, equal(Column[x], 3)), ONE * 10, 0.0
        )

    np.testing.assert_array_equal(lazy(body), [1, 10, 1, 10, 10, 10])


def test_lookup_behind_a_condition_that_decides():
    def body(p, x, A, Column, Y):
        p.where(both(x < 3, present(A[0, Column[x]])))
        Y[x] = 5

    np.testing.assert_array_equal(lazy(body), [5, 5, 9, 9, 9, 9])


# axes


def test_more_elements_in_a_row_than_coordinates():
    p = ProgramBuilder("repeated")
    m, nnz = p.sizes("m", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (1, nnz), ("ptr", "idx"), sorted=False, unique=False)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("it", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 0
        Y[i] = Y[i] + A[i, j]
    program = p.finish()
    got = agree(program, m=2, nnz=5, ptr=[0, 3, 5], idx=[0] * 5, A=[1, 2, 3, 4, 5], Y=np.full(2, np.nan))
    np.testing.assert_array_equal(got["Y"], [6, 9])
    # the domain of the block's variable must hold all of them, or TVM may reason it away
    assert "T.axis.reduce(nnz, j)" in lower(program).script()


def test_fused_axes_with_a_fixed_one_between():
    p = ProgramBuilder("fused_three")
    I, J = csr(p)
    L = p.sparse_fixed("L", J, (9, 2), "lidx")
    R = p.dense_variable("R", L, (9, p.size("nnz_r")), "rptr")
    A, Y = p.buffer("A", (I, J, L, R), "float32"), p.buffer("Y", (I, J, L, R), "float32")
    with p.iterate("it", (I, J, L, R), "SSSS", fused=((I, J, L, R),)) as (i, j, l, r):
        Y[i, j, l, r] = A[i, j, l, r] + cast("float32", ((i * 10 + j) * 10 + l) * 10 + r)
    got = agree(
        p.finish(), **CSR | {"A": [0] * 5}, nnz_r=5, lidx=[3, 4] * 4, rptr=[0, 0, 2, 2, 2, 3, 3, 3, 5], Y=np.zeros(5)
    )
    np.testing.assert_array_equal(got["Y"], [140, 141, 2030, 2240, 2241])


def test_fused_reduction_over_all_elements():
    p = ProgramBuilder("total")
    I, J = csr(p)
    X = p.dense_fixed("X", 2)
    A, V, Y = (
        p.buffer("A", (I, J), "float32"),
        p.buffer("V", (p.dense_fixed("N", J.length), X), "float32"),
        p.buffer("Y", (X,), "float32"),
    )
    with p.iterate("it", (X, I, J), "SRR", fused=((I, J),)) as (x, i, j):
        with p.init():
            Y[x] = 0
        Y[x] = Y[x] + A[i, j] * V[j, x]
    v = np.arange(8).reshape(4, 2)
    got = agree(p.finish(), **CSR, V=v, Y=np.full(2, np.nan))
    np.testing.assert_array_equal(got["Y"], np.array([3, 1, 4, 2]) @ v)


def test_iteration_over_one_element():
    p = ProgramBuilder("once")
    X, O = p.dense_fixed("X", 4), p.dense_fixed("O", 1)
    Y = p.buffer("Y", (X,), "float32")
    with p.iterate("it", (O,), "S"):
        Y[2] = 7
    np.testing.assert_array_equal(agree(p.finish(), Y=np.zeros(4))["Y"], [0, 0, 7, 0])


def test_temporary_and_local_on_sparse_axes():
    p = ProgramBuilder("intermediate")
    I, J = csr(p)
    A, Y = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I, J), "float32")
    T = p.temporary("T", (I, J), "float32")
    with p.iterate("square", (I, J), "SS") as (i, j):
        T[i, j] = A[i, j] * A[i, j]
    with p.iterate("back", (I,), "S") as (i,):
        L = p.local("L", (I, J), "float32")
        with p.iterate("keep", (J,), "S", ("a",)) as (a,):
            L[i, a] = T[i, a] + 1
        with p.iterate("out", (J,), "S", ("b",)) as (b,):
            Y[i, b] = L[i, b] * 2
    np.testing.assert_array_equal(agree(p.finish(), **CSR, Y=np.zeros(4))["Y"], [4, 10, 20, 34])


# values


def test_functions_and_conversions():
    p = ProgramBuilder("functions")
    X = p.dense_fixed("X", 5)
    A = p.buffer("A", (X,), "float32")
    functions = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs")
    outs = [p.buffer(f"Y_{name}", (X,), "float32") for name in functions]
    Whole, Wrapped, Flag = (
        p.buffer("Whole", (X,), "int64"),
        p.buffer("Wrapped", (X,), "int32"),
        p.buffer("Flag", (X,), "bool"),
    )
    with p.iterate("it", (X,), "S") as (x,):
        for out, name in zip(outs, functions):
            out[x] = call(name, A[x])
        Whole[x] = cast("int64", A[x]) // 2 + (x - 3) % 4
        Wrapped[x] = cast("int64", cast("int8", x * 100)) + cast("int64", cast("bool", x))
        Flag[x] = A[x] > 1
    a = np.array([0.5, 1, 2, 3, -4], np.float32)
    got = agree(
        p.finish(),
        A=a,
        Whole=np.zeros(5),
        Wrapped=np.zeros(5),
        Flag=np.zeros(5),
        **{f"Y_{n}": np.zeros(5) for n in functions},
    )
    np.testing.assert_array_equal(got["Whole"], [1, 2, 4, 1, -1])
    np.testing.assert_array_equal(got["Wrapped"], [0, 101, -55, 45, -111])
    np.testing.assert_array_equal(got["Flag"], a > 1)


def test_infinite_constants():
    p = ProgramBuilder("infinite")
    X = p.dense_fixed("X", 2)
    Y = p.buffer("Y", (X,), "float32")
    with p.iterate("it", (X,), "S") as (x,):
        Y[x] = select(x < 1, number(float("inf"), "float32"), float("-inf"))
    np.testing.assert_array_equal(agree(p.finish(), Y=np.zeros(2))["Y"], [np.inf, -np.inf])
