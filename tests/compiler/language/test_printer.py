"""Programs print as Python that builds exactly the same program: drawn programs with everything a program may hold."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import (
    FUNCTIONS,
    Binary,
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
from gnn_sparse_backend.compiler.language.printer import program_from_script, script

FLOAT = ("float32", "float64", "float16", "bfloat16")
NARROW = ("int32", "uint8")


class Drawer:
    """Draws expressions of a wanted type over some variables and buffers."""

    def __init__(self, draw, buffers, sizes):
        self.draw, self.buffers, self.sizes = draw, buffers, sizes

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def load(self, dtype, variables, depth):
        buffer = self.pick(*(b for b in self.buffers if self.dtype_of(b) == dtype))
        return buffer[tuple(self.expr("int64", variables, depth - 1) for _ in buffer.value.axes)]

    @staticmethod
    def dtype_of(buffer):
        kind = buffer.value.dtype
        return "int64" if kind in ("int32", "int64", "uint8") else kind

    def expr(self, dtype, variables, depth):
        if depth <= 0:
            return self.leaf(dtype, variables)
        if dtype == "bool":
            return self.condition(variables, depth - 1)
        shape = self.pick("leaf", "load", "binary", "binary", "binary", "minmax", "select", "cast", "negate", "call")
        a = lambda: self.expr(dtype, variables, depth - 1)
        if shape == "load" and any(self.dtype_of(b) == dtype for b in self.buffers):
            return self.load(dtype, variables, depth)
        if shape == "binary":
            operators = ["+", "-", "*"] + (["/"] if dtype in FLOAT else ["//", "%"])
            return Binary(self.pick(*operators), a(), a())
        if shape == "minmax":
            return self.pick(minimum, maximum)(a(), a())
        if shape == "select":
            return select(self.expr("bool", variables, depth - 1), a(), a())
        if shape == "cast":
            other = self.pick(*(t for t in (*FLOAT, *NARROW, "int64", "bool") if t != dtype))
            return cast(dtype, self.expr(other, variables, depth - 1))
        if shape == "negate":
            return -a()
        if shape == "call" and dtype in FLOAT:
            return call(self.pick(*FUNCTIONS), a())
        return self.leaf(dtype, variables)

    def condition(self, variables, depth):
        shape = self.pick("order", "order", "equal", "logic", "present", "load")
        if shape == "order":
            dtype = self.pick("int64", "float32", "int32")
            return Binary(self.pick("<", "<=", ">", ">="), *(self.expr(dtype, variables, depth) for _ in range(2)))
        if shape == "equal":
            dtype = self.pick("int64", "float64", "bool")
            return self.pick(equal, differ)(*(self.expr(dtype, variables, depth) for _ in range(2)))
        if shape == "logic":
            return self.pick(both, either)(*(self.expr("bool", variables, depth) for _ in range(2)))
        load = self.load(self.pick("float32", "int64") if shape == "present" else "bool", variables, depth)
        return present(load) if shape == "present" else load

    def leaf(self, dtype, variables):
        if dtype in FLOAT:
            return number(self.pick(0.0, 1.5, -2.0, 1e-30, math.inf, -math.inf, 3), dtype)
        if dtype == "bool":
            return number(self.pick(0, 1), "bool")
        constants = (number(self.draw(st.integers(0, 99)), dtype),)
        if dtype == "int64":
            constants += (number(-7), number(2**62), *variables, *(number(s) for s in self.sizes))
        return self.pick(*constants)


@st.composite
def programs(draw):
    p = ProgramBuilder(draw(st.sampled_from(["main", "p", "x1"])))
    m, n, nnz = p.sizes("m", "n", "nnz")
    dtype = draw(st.sampled_from(["int32", "int64"]))
    flag = st.booleans()
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_ptr", "J_idx"), dtype, sorted=draw(flag), unique=draw(flag))
    L = p.sparse_fixed("L", J, (draw(st.sampled_from([n, 9])), 4), "L_idx", dtype, sorted=draw(flag), padded=draw(flag))
    R = p.dense_variable("R", I, (n, nnz), "R_ptr", dtype)
    P = p.dense_fixed("P", draw(st.integers(0, 40)))  # its iterator has the name that the builder usually has
    buffers = [
        p.buffer("A", (I, J, L), "float32"),
        p.buffer("B", (I, P), "float32", strided=draw(flag)),
        p.buffer("D", (I, R), "float64"),
        p.buffer("H", (P,), draw(st.sampled_from(["float16", "bfloat16"]))),
        p.temporary("Idx", (I, J), "int32"),
        p.buffer("Mask", (I,), "uint8"),
        p.buffer("Flag", (P,), "bool"),
        p.buffer("One", (), "float32"),
    ]
    d = Drawer(draw, buffers, (m, n, nnz))
    depth = draw(st.integers(1, 4))

    def store(variables, targets=buffers):
        target = draw(st.sampled_from(targets))
        at = tuple(d.expr("int64", variables, 1) for _ in target.value.axes)
        target[at] = d.expr(d.dtype_of(target), variables, depth)

    for count in range(draw(st.integers(0, 2))):
        axes, kinds = draw(
            st.sampled_from([((I, J), "SS"), ((I, J), "SR"), ((I, J, L), "SSR"), ((P,), "S"), ((I, R, P), "SRS")])
        )
        fused = ((I, J),) if axes[:2] == (I, J) and kinds[:2] == "SS" and draw(flag) else ()
        names = tuple(a.name.lower() for a in axes) if draw(flag) else tuple(f"v{count}_{k}" for k in range(len(axes)))
        with p.iterate(f"it{count}", axes, kinds, names, fused) as variables:
            own = [p.local(f"local{count}", draw(st.sampled_from([(), (P,)])), "float32")] if draw(flag) else []
            if "R" in kinds and not fused and draw(flag):
                with p.init():
                    buffers[7][()] = d.leaf("float32", ())
            if draw(flag):
                p.where(d.expr("bool", variables, depth))
            for _ in range(draw(st.integers(0, 2))):
                store(variables, buffers + own)
            if P not in axes and draw(flag):
                with p.iterate(f"inner{count}", (P,), draw(st.sampled_from("SR")), (f"w{count}",)) as (w,):
                    store((*variables, w), buffers + own)
    return p.finish()


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(programs())
def test_printed_programs_build_the_same_program(program):
    text = script(program)
    again = program_from_script(text)
    assert again == program
    assert script(again) == text


def round_trip(build):
    p = ProgramBuilder("tiny")
    n = p.size("n")
    K = p.dense_fixed("K", 8)
    C = p.buffer("C", (K,), "int64")
    with p.iterate("it", (K,), "S") as (k,):
        C[k] = build(k, n)
    program = p.finish()
    assert program_from_script(script(program)) == program
    return script(program).splitlines()[-2].strip().removeprefix("C[k] = ")


@pytest.mark.parametrize(
    "build, printed",
    [
        (lambda k, n: k + 2 * k, "k + 2 * k"),
        (lambda k, n: (k + 2) * k, "(k + 2) * k"),
        (lambda k, n: k - (k - 1), "k - (k - 1)"),
        (lambda k, n: k - k - 1, "k - k - 1"),
        (lambda k, n: k // (k * 2), "k // (k * 2)"),
        (lambda k, n: k * 2 // 3 % 4, "k * 2 // 3 % 4"),
        (lambda k, n: 7 // k + 7 % k, "7 // k + 7 % k"),
        # Python would work these out by itself
        (lambda k, n: (number(2) + 3) * k, "(number(2) + 3) * k"),
        (lambda k, n: select(number(3) < k, number(1), 2), "select(number(3) < k, 1, 2)"),
        (
            lambda k, n: select(both(k < 3, either(k > 1, equal(k, n))), k, -1),
            "select(both(k < 3, either(k > 1, equal(k, number(n)))), k, -1)",
        ),
        (
            lambda k, n: cast("int64", cast("float32", number(3)) / 2),
            "cast('int64', cast('float32', number(3)) / number(2.0, 'float32'))",
        ),
        (lambda k, n: k - -1, "k - -1"),
    ],
)
def test_one_expression(build, printed):
    assert round_trip(build) == printed


def test_names_of_the_builder_are_free_for_programs():
    p = ProgramBuilder("p")
    P = p.dense_fixed("P", 3)
    p_ = p.buffer("p_", (P,), "float32")
    with p.iterate("it", (P,), "S") as (v,):
        p_[v] = 1
    program = p.finish()
    assert script(program).startswith("p__ = ProgramBuilder('p')")
    assert program_from_script(script(program)) == program


def test_text_that_leaves_no_program():
    with pytest.raises(StageIError, match="does not leave a program in the variable 'program'"):
        program_from_script("program = 3")
