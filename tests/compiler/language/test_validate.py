"""Every error of the validator: it names the axis, buffer or iteration and says what to write."""

from dataclasses import replace

import pytest

from gnn_sparse_backend.compiler.language.axes import (
    Axis,
    Size,
    StageIError,
    dense_fixed,
    sparse_fixed,
    sparse_variable,
)
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import Const, Load, SizeOf, Var, present
from gnn_sparse_backend.compiler.language.program import Buffer, Iteration, Program, Store
from gnn_sparse_backend.compiler.language.validate import validate

m, n, nnz = Size("m"), Size("n"), Size("nnz")
I = dense_fixed("I", m)
J = sparse_variable("J", I, (n, nnz), ("ptr", "idx"))
K = dense_fixed("K", 4)
A = Buffer("A", (I, J), "float32")
B = Buffer("B", (I, K), "float32")
C = Buffer("C", (I,), "float32")
i, j, k = Var("i"), Var("j"), Var("k")
zero = Const(0.0, "float32")


def program(*iterations, axes=(I, J, K), buffers=(A, B, C), sizes=(m, n, nnz)):
    return Program("under_test", tuple(sizes), tuple(axes), tuple(buffers), iterations)


def over(axes, kinds, variables, *body, **more):
    return Iteration("it", axes, kinds, variables, body=body, **more)


def refused(message, broken):
    with pytest.raises(StageIError, match=message):
        validate(broken)


def test_well_formed():
    validate(program(over((I, J), "SR", (i, j), Store(C, (i,), C[i] + A[i, j]), init=(Store(C, (i,), zero),))))


# names


@pytest.mark.parametrize("name", ["2m", "a b", "", "lambda", "None"])
def test_name_is_no_identifier(name):
    refused("is not an identifier", program(sizes=(m, n, nnz, Size(name))))


def test_program_name_is_no_identifier():
    refused("'my program' is not an identifier", replace(program(), name="my program"))


def test_variable_name_is_no_identifier():
    refused("'for' is not an identifier", program(over((I,), "S", (Var("for"),))))


@pytest.mark.parametrize("name", ["select", "number", "program", "float"])
def test_name_has_a_meaning_in_the_text_of_programs(name):
    refused(
        f"{name!r} has a meaning in the text of programs; choose another", program(axes=(I, J, K, dense_fixed(name, 3)))
    )


def test_name_used_twice():
    refused("the name 'm' is used 2 times", program(buffers=(A, B, C, Buffer("m", (I,), "float32"))))
    refused(
        "the name 'ptr' is used 2 times", program(axes=(I, J, K, sparse_variable("L", I, (n, nnz), ("ptr", "idx2"))))
    )
    refused("the name 'it' is used 2 times", program(over((I,), "S", (i,)), over((I,), "S", (i,))))
    local = Buffer("A", (), "float32", "local")
    refused("the name 'A' is used 2 times", program(over((I,), "S", (i,), locals=(local,))))


# axes


def test_kind_of_an_axis():
    with pytest.raises(StageIError, match="axis 'X': kind 'ragged' is not one of dense_fixed"):
        Axis("X", "ragged", 3)


def test_index_type_of_an_axis():
    with pytest.raises(StageIError, match="axis 'J': index type 'int16' is not int32 or int64"):
        sparse_variable("J", I, (n, nnz), ("ptr", "idx"), "int16")


def test_axis_without_a_parent():
    with pytest.raises(StageIError, match="axis 'J': a sparse_fixed axis needs a parent axis; roots are dense_fixed"):
        sparse_fixed("J", None, (n, 4), "idx")


def test_parent_is_not_in_the_program():
    refused("axis 'J': its parent 'I' is not an axis of the program", program(axes=(J, K), buffers=()))


def test_parent_is_declared_after():
    refused("axis 'J': declare its parent 'I' before it", program(axes=(J, I, K), buffers=()))


@pytest.mark.parametrize("size, what", [(m, "length"), (n, "length"), (nnz, "nnz")])
def test_extent_is_not_a_size_of_the_program(size, what):
    left = tuple(s for s in (m, n, nnz) if s != size)
    refused(f"its {what} {size.name!r} is not a size of the program", program(sizes=left))


def test_negative_extent():
    refused("axis 'X': its length is -1, which is negative", program(axes=(I, J, K, dense_fixed("X", -1))))
    refused(
        "axis 'X': its nnz_cols is -2, which is negative", program(axes=(I, J, K, sparse_fixed("X", I, (n, -2), "x")))
    )


@pytest.mark.parametrize("extent", [None, 2.0, "m"])
def test_extent_of_another_type(extent):
    refused(
        "axis 'X': its length .* is neither an integer nor a Size", program(axes=(I, J, K, dense_fixed("X", extent)))
    )
    refused("axis 'X': its nnz_cols", program(axes=(I, J, K, sparse_fixed("X", I, (n, extent), "x"))))
    refused("axis 'X': its nnz ", program(axes=(I, J, K, sparse_variable("X", I, (n, extent), ("xp", "x")))))


# buffers


def test_value_type_of_a_buffer():
    with pytest.raises(StageIError, match="buffer 'X': unknown value type 'complex64'"):
        Buffer("X", (I,), "complex64")


def test_scope_of_a_buffer():
    with pytest.raises(StageIError, match="buffer 'X': scope 'shared' is not one of param, temporary, local"):
        Buffer("X", (I,), "float32", "shared")


def test_buffer_on_an_unknown_axis():
    refused(
        "buffer 'X': 'Z' is not an axis of the program",
        program(buffers=(Buffer("X", (dense_fixed("Z", 3),), "float32"),)),
    )


def test_buffer_without_a_layout():
    refused("buffer 'X': axis 'J' stands before its parent 'I'", program(buffers=(Buffer("X", (J, I), "float32"),)))


def test_strided_buffer_of_one_tree_or_not_a_parameter():
    message = "buffer 'X': only a parameter on at least two axis trees can be strided"
    refused(message, program(buffers=(Buffer("X", (I, J), "float32", strided=True),)))
    refused(message, program(buffers=(Buffer("X", (I, K), "float32", "temporary", strided=True),)))


# iterations


@pytest.mark.parametrize("kinds", ["S", "SSS", "SX", "sr"])
def test_kinds(kinds):
    refused(
        f"iteration 'it': kinds {kinds!r} must be one letter S or R for each of 2 axes",
        program(over((I, K), kinds, (i, k))),
    )


def test_iteration_over_no_axis():
    refused("iteration 'it' visits no axis; a dense axis of length 1 is visited once", program(over((), "", ())))


def test_number_of_variables():
    refused("iteration 'it': 2 axes and 1 variables", program(over((I, K), "SS", (i,))))


def test_iteration_over_an_unknown_axis():
    refused("iteration 'it': 'Z' is not an axis of the program", program(over((dense_fixed("Z", 3),), "S", (i,))))


def test_axis_visited_twice():
    refused("iteration 'it': axis 'K' is visited twice", program(over((K, K), "SS", (i, k))))


def test_variable_bound_twice():
    refused("the variable 'i' is already bound", program(over((I, K), "SS", (i, i))))
    inner = Iteration("inner", (K,), "S", (i,))
    refused("iteration 'inner': the variable 'i' is already bound", program(over((I,), "S", (i,), inner)))


@pytest.mark.parametrize("name", ["m", "I", "ptr", "A", "it"])
def test_variable_with_the_name_of_something_else(name):
    refused(
        f"the variable {name!r} has the name of a size, axis, array, buffer or iteration; choose another",
        program(over((K,), "S", (Var(name),))),
    )


def test_parent_is_not_visited():
    refused(
        "axis 'J' needs its parent 'I' before it, here or in an enclosing iteration", program(over((J,), "S", (j,)))
    )
    refused("axis 'J' needs its parent 'I' before it", program(over((J, I), "SS", (j, i))))


def test_parent_is_visited_by_the_enclosing_iteration():
    validate(program(over((I,), "S", (i,), Iteration("inner", (J,), "R", (j,), body=(Store(C, (i,), A[i, j]),)))))


# init


def init_over(axes, kinds, variables, *init, body=(), **more):
    return program(over(axes, kinds, variables, *body, init=init, **more))


def test_init_without_a_reduction():
    refused(
        "init without a reduction axis; store the value in the body", init_over((I,), "S", (i,), Store(C, (i,), zero))
    )


def test_init_under_a_reduction_axis():
    refused(
        "spatial axis 'J' hangs on reduction axis 'I', so init has no domain",
        init_over((I, J), "RS", (i, j), Store(A, (i, j), zero)),
    )


def test_init_by_a_reduction_variable():
    refused("init: the variable 'k' is not bound here", init_over((I, K), "SR", (i, k), Store(B, (i, k), zero)))


def test_init_of_a_local():
    local = Buffer("S", (), "float32", "local")
    refused(
        "init: buffer 'S' is not visible here", init_over((I, K), "SR", (i, k), Store(local, (), zero), locals=(local,))
    )


def test_init_that_must_search():
    first = Const(0, "int64")
    message = (
        "buffer 'A' would have to look up a coordinate of sparse axis 'J'; "
        "write the initial values in an iteration of their own"
    )
    refused(message, init_over((I, K), "SR", (i, k), Store(A, (i, first), zero)))
    refused(message, init_over((I, K), "SR", (i, k), Store(C, (i,), A[i, first])))
    # the row is not the visited one, so the position in it is not either
    refused(message, init_over((I, J, K), "SSR", (i, j, k), Store(A, (first, j), zero)))
    validate(init_over((I, J, K), "SSR", (i, j, k), Store(A, (i, j), zero)))


def test_init_with_fused_axes():
    fused = ((I, J),)
    refused(
        "init cannot run in a loop fused over spatial and reduction axes",
        init_over((I, J), "SR", (i, j), Store(C, (i,), zero), fused=fused),
    )
    refused(
        r"init cannot run before the loop fused over \['I', 'J'\], which comes after a reduction axis; visit the fused "
        r"axes first",
        init_over((K, I, J), "RSS", (k, i, j), Store(A, (i, j), zero), fused=fused),
    )
    validate(init_over((I, J, K), "SSR", (i, j, k), Store(A, (i, j), zero), fused=fused))


# fused groups


@pytest.mark.parametrize(
    "group, message",
    [
        ((I,), r"fused group \['I'\] must name at least two of its axes"),
        ((I, K), r"fused axes \['I', 'K'\] are not consecutive"),
        ((J, K), r"fused axes \['J', 'K'\] must be one tree, from its root down"),
        ((I, dense_fixed("Z", 3)), r"fused group \['I', 'Z'\] must name at least two of its axes"),
    ],
)
def test_fused_group(group, message):
    refused(f"iteration 'it': {message}", program(over((I, J, K), "SSS", (i, j, k), fused=(group,))))


def test_fused_group_below_its_root():
    inner = Iteration("inner", (J, K), "SS", (j, k), fused=((J, K),))
    refused("must be one tree, from its root down", program(over((I,), "S", (i,), inner)))


# statements


def test_store_to_a_buffer_that_is_not_there():
    refused(
        "buffer 'X' is not visible here",
        program(over((I,), "S", (i,), Store(Buffer("X", (I,), "float32"), (i,), zero))),
    )


def test_local_outside_its_iteration():
    local = Buffer("S", (), "float32", "local")
    owner = Iteration("owner", (I,), "S", (i,), locals=(local,))
    refused(
        "iteration 'it': buffer 'S' is not visible here",
        program(owner, over((I,), "S", (i,), Store(C, (i,), Load(local, ())))),
    )


def test_load_of_a_buffer_that_is_not_there():
    refused(
        "buffer 'X' is not visible here",
        program(over((I,), "S", (i,), Store(C, (i,), Buffer("X", (I,), "float32")[i]))),
    )


def test_unbound_variable():
    refused(
        "iteration 'it': the variable 'k' is not bound here", program(over((I,), "S", (i,), Store(C, (i,), B[i, k])))
    )


def test_size_that_is_not_the_programs():
    other = Buffer("P", (I,), "int32")
    it = over((I,), "S", (i,), Store(other, (i,), SizeOf(Size("q"))))
    refused("'q' is not a size of the program", program(it, buffers=(A, B, C, other)))


def test_index_that_is_no_integer():
    refused(
        "buffer 'C' is indexed by a value of type float32", program(over((I,), "S", (i,), Store(C, (A[i, i],), zero)))
    )
    refused(
        "buffer 'C' is indexed by a value of type bool",
        program(over((I,), "S", (i,), Store(B, (i, i), C[present(C[i])]))),
    )


def test_condition_that_is_none():
    refused(
        "iteration 'it': where wants a condition, not a value of type float32",
        program(over((I,), "S", (i,), where=C[i])),
    )
    refused("iteration 'it': where wants a condition, not False", program(over((I,), "S", (i,), where=(i == j))))


def test_condition_on_an_unbound_variable():
    refused("iteration 'it', where: the variable 'k' is not bound here", program(over((I,), "S", (i,), where=k < 3)))


def test_condition_on_an_own_local():
    local = Buffer("S", (), "float32", "local")
    refused(
        "where: buffer 'S' is not visible here",
        program(over((I,), "S", (i,), where=Load(local, ()) < 3, locals=(local,))),
    )


def test_builder_validates():
    p = ProgramBuilder("under_test")
    p.dense_fixed("I", Size("m"))
    with pytest.raises(StageIError, match="axis 'I': its length 'm' is not a size of the program"):
        p.finish()
