"""Writing programs: what the builder records, and how it answers misuse."""

import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import Const, Var
from gnn_sparse_backend.compiler.language.program import Buffer, Iteration, Store


@pytest.fixture
def p():
    return ProgramBuilder("written")


def test_records_what_was_written(p):
    m = p.size("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", 4)
    A, C = p.buffer("A", (I, K), "float32"), p.buffer("C", (I,), "float32")
    with p.iterate("rows", (I, K), "SR") as (i, k):
        S = p.local("S", (), "float32")
        with p.init():
            C[i] = 0
        p.where(k < 3)
        S[()] = A[i, k]
        C[i] = C[i] + S[()]
    program = p.finish()
    assert (program.sizes, program.axes, program.buffers) == ((m,), (I, K), (A.value, C.value))
    i, k = Var("i"), Var("k")
    s = Buffer("S", (), "float32", "local")
    assert program.iterations == (
        Iteration(
            "rows",
            (I, K),
            "SR",
            (i, k),
            (Store(C.value, (i,), Const(0.0, "float32")),),
            (Store(s, (), A[i, k]), Store(C.value, (i,), C[i] + s[()])),
            (s,),
            (),
            k < 3,
        ),
    )
    assert program.parameter_names == ("m", "A", "C")


def test_nested_iterations_keep_their_order(p):
    I, K = p.dense_fixed("I", 2), p.dense_fixed("K", 4)
    C = p.buffer("C", (I,), "float32")
    with p.iterate("outer", (I,), "S") as (i,):
        C[i] = 1
        with p.iterate("inner", (K,), "R") as (_k,):
            C[i] = C[i] + 1
        C[i] = 2
    (outer,) = p.finish().iterations
    assert [type(s) for s in outer.body] == [Store, Iteration, Store]


def test_parameters_in_the_order_of_the_kernel(p):
    n, nnz = p.sizes("n", "nnz")
    X = p.buffer("X", (), "float32")
    I = p.dense_fixed("I", n)
    p.temporary("T", (I,), "float32")
    J = p.sparse_variable("J", I, (n, nnz), ("ptr", "idx"))
    p.sparse_fixed("L", I, (n, 3), "cols", "int64")
    p.dense_variable("R", I, (n, nnz), "rptr")
    p.buffer("A", (I, J), "float32")
    program = p.finish()
    assert X.value.axes == ()
    assert program.parameter_names == ("n", "nnz", "ptr", "idx", "cols", "rptr", "X", "A")


def test_lookups_by_name(p):
    I = p.dense_fixed("I", 3)
    A = p.buffer("A", (I,), "float32")
    with p.iterate("fill", (I,), "S") as (i,):
        A[i] = 1
    program = p.finish()
    assert program.axis("I") == I and program.buffer("A") == A.value and program.iteration("fill").axes == (I,)
    for look, message in (
        (program.axis, "has no axis 'Z'; it has I"),
        (program.buffer, "has no buffer 'Z'; it has A"),
        (program.iteration, "has no iteration 'Z'; it has fill"),
    ):
        with pytest.raises(StageIError, match=message):
            look("Z")


def test_store_outside_an_iteration(p):
    A = p.buffer("A", (), "float32")
    with pytest.raises(StageIError, match="store to 'A' outside any iteration"):
        A[()] = 1


def test_store_of_another_type(p):
    I = p.dense_fixed("I", 3)
    A, P = p.buffer("A", (I,), "float32"), p.buffer("P", (I,), "int32")
    with p.iterate("it", (I,), "S") as (i,):
        with pytest.raises(StageIError, match=r"store to 'A' \(float32\) of a value of type int64; cast it"):
            A[i] = P[i]
        with pytest.raises(StageIError, match="0.5 cannot stand where an int64 is wanted"):
            P[i] = 0.5
        P[i] = P[i] + 1  # index values are int64 in expressions, whatever the buffer stores
    assert len(p.finish().iterations[0].body) == 1


def test_wrong_number_of_indices(p):
    I = p.dense_fixed("I", 3)
    A = p.buffer("A", (I, p.dense_fixed("K", 2)), "float32")
    with (
        p.iterate("it", (I,), "S") as (i,),
        pytest.raises(StageIError, match=r"'A' has 2 axes \(I, K\) and was indexed with 1"),
    ):
        A[i] = 1


def test_local_outside_an_iteration(p):
    with pytest.raises(StageIError, match="local buffer 'S' must be declared inside an iteration"):
        p.local("S", (), "float32")


def test_init_outside_an_iteration(p):
    with pytest.raises(StageIError, match="init belongs inside an iteration"), p.init():
        pass


def test_where_outside_or_twice(p):
    with pytest.raises(StageIError, match="where belongs inside an iteration, once"):
        p.where(Var("i") < 3)
    I = p.dense_fixed("I", 3)
    with p.iterate("it", (I,), "S") as (i,):
        p.where(i < 2)
        with pytest.raises(StageIError, match="where belongs inside an iteration, once"):
            p.where(i < 1)


def test_where_of_a_python_comparison(p):
    I = p.dense_fixed("I", 3)
    with p.iterate("it", (I,), "S") as (i,):
        with pytest.raises(StageIError, match="where wants a condition, not False; compare with <, equal"):
            p.where(i == 2)


def test_number_of_variables(p):
    I = p.dense_fixed("I", 3)
    with (
        pytest.raises(StageIError, match="iteration 'it': 1 axes and 2 variable names"),
        p.iterate("it", (I,), "S", ("a", "b")),
    ):
        pass


def test_finish_inside_an_iteration(p):
    I = p.dense_fixed("I", 3)
    with p.iterate("it", (I,), "S"), pytest.raises(StageIError, match="iteration 'it' is still open"):
        p.finish()


def test_an_error_inside_leaves_no_open_iteration(p):
    I = p.dense_fixed("I", 3)
    A = p.buffer("A", (I,), "float32")
    with pytest.raises(KeyError), p.iterate("broken", (I,), "S"), p.init():
        raise KeyError
    with p.iterate("good", (I,), "S") as (i,):
        A[i] = 1
    assert [it.name for it in p.finish().iterations] == ["good"]
