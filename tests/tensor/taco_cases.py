"""What the tests of the Tensor Algebra Compiler say must work, in the notation of this package.

A line is `expression | format of the result | formats of the operands`, of each mode d (dense) or s (compressed), q a
single coordinate or none, with the order of the modes behind a colon; operands in the order in which they are first
read. Values are our own: small integers, of which some are zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

READ = re.compile(r"([A-Za-z]\w*)(?:\[([\w,]*)\])?")


@dataclass(frozen=True)
class Case:
    """One case: test names TACO's group, or test. schedule: commands, each a name and its arguments."""

    file: str
    test: str
    expression: str
    format: str
    formats: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    schedule: tuple[tuple, ...] = ()

    def __str__(self) -> str:
        return f"{self.test}: {self.expression} | {self.format} | {' '.join(self.formats)}".rstrip(" |")

    @property
    def operands(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """(shape, format) of each operand by name."""
        sizes = dict(self.sizes)
        read = dict(READ.findall(self.expression.partition("=")[2]))
        assert len(read) == len(self.formats), self
        shapes = (tuple(sizes[i] for i in indices.split(",") if i) for indices in read.values())
        return {name: (shape, format.strip(".")) for name, shape, format in zip(read, shapes, self.formats)}


def sized(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((each[0], int(each[1:])) for each in text.split())


STORAGE: dict[str, tuple[str, tuple[str, ...]]] = {
    "scalar_constant": ("", ("a = -2 | |",)),
    "scalar": ("", ("a = -b | | .", "a = b * c | | . .", "a = b + c | | . .")),
    "vector_neg": ("i5", ("a[i] = -b[i] | d | d", "a[i] = -b[i] | s | s")),
    "vector_scalar": (
        "i5",
        ("a[i] = b[i] * c | d | d .", "a[i] = b[i] * c | s | s .", "a[i] = b[i] + c | d | d ."),
    ),
    "vector_elmul": ("i5", tuple(f"a[i] = b[i] * c[i] | {f}" for f in ("d | d d", "d | s d", "d | d s", "s | s s"))),
    "vector_add": ("i5", tuple(f"a[i] = b[i] + c[i] | {f}" for f in ("d | d d", "d | s d", "s | s d", "s | s s"))),
    "vector_composites": (
        "i8",
        (
            "a[i] = (b[i] + c[i]) * d[i] | d | s d d",
            "a[i] = (b[i] + c[i]) * d[i] | d | s s s",
            "a[i] = b[i] * (c[i] + d[i]) | d | s d d",
            "a[i] = (c[i] + d[i]) * b[i] | d | s d s",
            *(f"a[i] = b[i] + c[i] + d[i] * e[i] | d | {f}" for f in ("d d d d", "s s s d", "s d s s", "s s s s")),
            *(f"a[i] = (b[i] + c[i] + d[i]) * e[i] | d | {f}" for f in ("d d d d", "s s s d", "s d s s", "s s s s")),
            "a[i] = b[i] + c[i] + d[i] + e[i] | d | s s s s",
        ),
    ),
    "matrix_neg": ("i3 j3", ("a[i,j] = -b[i,j] | dd | dd", "a[i,j] = -b[i,j] | ss | ss")),
    "matrix_elmul": ("i3 j3", ("A[i,j] = B[i,j] * C[i,j] | ss | ss ss",)),
    "matrix_add": (
        "i3 j3",
        tuple(
            f"A[i,j] = B[i,j] + C[i,j] | {f}"
            for f in ("dd | dd dd", "dd | ds ds", "ds | ds ds", "ds:1,0 | ds:1,0 ds:1,0", "ss | ss ss")
        ),
    ),
    "matrix_add ": (
        "i3 j4",
        tuple(f"A[i,j] = B[i,j] + C[i,j] | {f}" for f in ("ds | ds ds", "ds:1,0 | ds:1,0 ds:1,0")),
    ),
    "tensor_elmul": ("i2 j3 m3", ("A[i,j,m] = B[i,j,m] * C[i,j,m] | sss | sss sss",)),
    "composite": (
        "i5",
        (
            "a[i] = b[i] * c[i] + d[i] | s | s s s",
            "a[i] = d[i] + (b[i] * c[i]) | s | s s s",
            "a[i] = d[i] + (b[i] * c[i]) | d | s s s",
        ),
    ),
    "residual": ("i3 k3", tuple(f"r[i] = b[i] - A[i,k] * x[k] | d | d {f} d" for f in ("dd", "ss"))),
    "matrix_add_vec_mul_composite": ("i3 j3", ("a[i] = alpha * (B[i,j] + C[i,j]) * d[j] | d | . ds ds d",)),
    "scaled_matrix_vector": ("i3 k3", ("a[i] = 2.0 * (B[i,k] * c[k]) + 3.0 | d | dd d",)),
    "axpy_3x3": (
        "i3 k3",
        (
            *(f"a[i] = B[i,k] * c[k] + d[i] | d | {f}" for f in ("dd d d", "ds d d", "ss s s")),
            "a[i] = alpha * B[i,k] * c[k] + beta * d[i] | d | . ds d . d",
        ),
    ),
    "vector_inner": ("k5", ("a = b[k] * c[k] | | d d", "a = b[k] * c[k] | | s s")),
    "spmv": (
        "i3 k3",
        tuple(f"a[i] = B[i,k] * c[k] | {f}" for f in ("d | dd d", "d | dd:1,0 d", "d | ds d", "d | ds s", "s | ss s")),
    ),
    "bspmv": ("i3 k3 j2 l2", ("a[i,j] = B[i,k,j,l] * c[k,l] | dd | dsdd dd",)),
    "espmv": ("j3 i5 k5", ("a[i] = B[j,i,k] * c[k] | d | ddq d",)),
    "matrix_sum": ("k3 l3", ("a = B[k,l] | | dd", "a = B[k,l] | | ss")),
    "matrix_mul": ("i3 j3 k3", tuple(f"a[i,j] = B[i,k] * C[k,j] | dd | dd {f}" for f in ("dd:1,0", "dd"))),
    "tensor_vector_mul": (
        "i3 j3 k3",
        tuple(f"A[i,j] = B[i,j,k] * c[k] | dd | {f}" for f in ("ddd d", "sss d", "sss s")),
    ),
    "tensor_matrix_mul": ("i2 j3 k3", ("A[i,j] = B[i,j,k] * C[j,k] | dd | sss dd",)),
    "tensor_matrix_mul ": ("i2 j3 l3 m3", ("A[i,m,j] = B[i,m,l] * C[l,j] | ddd | sss dd:1,0",)),
    "mttkrp": ("i2 j3 k3 l3", ("A[i,j] = B[i,k,l] * C[k,j] * D[l,j] | dd | sss dd:1,0 dd:1,0",)),
    "emit_avail_exprs": (
        "i3 j3 m3",
        (
            "A[i,j] = 2.0 * D[i,j] | dd | dd",
            "A[i,j] = b[i] * D[i,j] | dd | d dd",
            "A[i,j] = (b[i] + c[i]) * D[i,j] | dd | d d dd",
            "A[i,j] = b[i] * D[i,j] * c[i] | dd | d dd d",
            "A[i,j,m] = b[i] * D[i,j,m] * c[j] | ddd | d ddd d",
        ),
    ),
}
"""tests-expr_storage.cpp. It compares index arrays and values of the result."""

LATTICES: dict[str, tuple[str, ...]] = {
    "copy": ("d1", "s1"),
    "neg": ("-d1", "-s1"),
    "mul": (
        *("d1 * d2", "d1 * d2 * d3", "s1 * s2", "s1 * s2 * s3", "s1 * d1", "d1 * s1", "(d1 * d2) * s1"),
        *("(s1 * s2) * d1", "(s1 * d1) * d2", "d2 * (s1 * d1)", "(s1 * d1) * s2"),
    ),
    "add": ("d1 + d2", "d1 + d2 + d3", "s1 + s2", "s1 + s2 + s3", "s1 + (s2 + s3)", "d1 + s2", "s1 + d2"),
    "add_multiply": ("(d1 + d2) * d3", "(s1 + s2) * d3", "(d1 + d2) * s3", "(s1 + d2) * d3", "(s1 + s2) * s3"),
    "multiply_add": ("(d1 * d2) + d3", "(s1 * s2) + d3", "(d1 * d2) + s3", "(s1 * d2) + d3", "(s1 * s2) + s3"),
    "add_multiply_multiply": tuple(
        f"{each} * ({other})"
        for each, other in zip(
            ("(d1 + d2)", "(d1 + d2)", "(s1 + s2)", "(d1 + s2)", "(s1 + s2)"),
            ("d3 * d4", "s3 * s4", "d3 * d4", "s3 * s4", "s3 * s4"),
        )
    ),
    "add_multiply_add": (
        *("(d1 + d2) * (d3 + d4)", "(d1 + d2) * (d3 + s4)", "(s1 + s2) * (s3 + d4)", "(s1 + s2) * (s3 + s4)"),
    ),
}
"""tests-merge_lattice.cpp: what is assigned to each element, of vectors with the format that their letter says."""

CUT = {
    "split": ("d1", (("split", "i", "i1", "i2", 2),)),
    "split_sparse": ("s1", (("split", "i", "i1", "i2", 2),)),
    "dense_tile": ("d1", (("split", "i", "i1", "i2", 2), ("reorder", "i2", "i1"))),
    "pos": ("s1", (("pos", "i", "ipos", "s1[i]"),)),
    "pos_mul_sparse": ("s1 * s2", (("pos", "i", "ipos", "s1[i]"),)),
    "split_pos_sparse": ("s1", (("pos", "i", "ipos", "s1[i]"), ("split", "ipos", "i1", "i2", 2))),
}
"""The same file: lattices under a schedule."""

PLAIN: dict[str, dict[str, tuple[str, str]]] = {
    "tests-expr.cpp": {
        "repeated_operand": ("i8", "a[i] = b[i] + b[i] | s | s"),
        "sub": ("i2", "c[i] = a[i] - b[i] | d | s s"),
        "scalarops 1": ("", "a = -b | | ."),
        "scalarops 2": ("", "a = b + c | | . ."),
        "scalarops 3": ("", "a = b - c | | . ."),
        "scalarops 4": ("", "a = b * c | | . ."),
        "scalarops 5": ("", "a = b / c | | . ."),
        "redefine 1": ("", "a = 40.0 | |"),
        "redefine 2": ("", "a = 42.0 | |"),
    },
    "tests-expr-reduction.cpp": {"reduction0": ("i5", "a = b[i] * c[i] | | d d")},
    "tests-transpose.cpp": {
        "transpose (disabled)": ("i3 j3", "A[i,j] = B[i,j] + C[i,j] | ss | ss ss:1,0"),
        "transpose2 (disabled)": ("i3 j3", "A[i,j] = B[i,j] + C[j,i] | ss | ss ss"),
        "transpose3 (disabled)": ("i3 j3 k3", "A[i,j,k] = B[i,j,k] + C[k,i,j] | sss | sss sss"),
        "denseIterationTranspose": ("i4 j4 k4", "C[i,j,k] = A[i,j,k] + B[k,j,i] | ddd | ddd ddd"),
    },
}
"""Tests of one expression each."""

EXHAUSTED = {
    "simplify_neg": ("-B[i,j]", "ss"),
    "simplify_elmul": ("B[i,j] * C[i,j]", "ss ss"),
    "simplify_add": ("B[i,j] + C[i,j]", "ss ss"),
    "simplify_addmul": ("(B[i,j] + C[i,j]) * D[i,j]", "ss ss ss"),
    "simplify_muladd": ("(B[i,j] * C[i,j]) + D[i,j]", "ss ss ss"),
}
"""tests-expr.cpp: what is left of an expression when some operands have no more elements."""

_TILE = ("precompute", "B[i] * C[i]", "i1", "i1p", "precomputed")
_DOT = (("precompute", "B[i]", "i1p", "i1b", "B_new"), ("precompute", "C[i]", "i1p", "i1c", "C_new"))
_TSPV = ("precompute", "B[i,j,k,l] * c[l]", ("i", "j", "k"), ("iw", "jw", "kw"), "ws")
WORKSPACES: dict[str, tuple[str, str, tuple[tuple, ...]]] = {
    **{
        f"tile_{name}": (
            f"i{size}",
            "A[i] = B[i] * C[i] | d | d d",
            (("bound", "i", "i_bounded", size), ("split", "i_bounded", "i0", "i1", part), _TILE),
        )
        for name, size, part in (
            *(("vecElemMul_NoTail", 16, 4), ("vecElemMul_Tail1", 16, 5)),
            *(("vecElemMul_Tail2", 17, 4), ("denseMatMul", 16, 4)),
        )
    },
    "precompute4D_multireduce": (
        "i4 j4 k4 l4 m4 n4",
        "A[i,j] = B[i,j,k,l] * C[k,l,m] * D[m,n] | dd | dddd ddd dd",
        (
            ("precompute", "B[i,j,k,l] * C[k,l,m]", ("i", "j", "m"), ("i1", "j1", "m1"), "ws1"),
            ("precompute", "ws1[i,j,m] * D[m,n]", ("i", "j"), ("i2", "j2"), "ws2"),
        ),
    ),
    **{
        f"precompute3D_{name}": ("i4 j4 k4 l4", "A[i,j] = B[i,j,k,l] * c[l] * c[k] | dd | dddd s", (_TSPV, *more))
        for name, more in (
            ("TspV", ()),
            ("multipleWS", (("precompute", "ws[i,j,k] * c[k]", ("i", "j"), ("it", "jt"), "t"),)),
            ("renamedIVars_TspV", ()),
        )
    },
    "tile_dotProduct_1": (
        "i1024",
        "A = B[i] * C[i] | | d d",
        (("bound", "i", "ib", 1024), ("split", "ib", "i0", "i1", 32), _TILE, *_DOT),
    ),
    "tile_dotProduct_2": (
        "i1024",
        "A = B[i] * C[i] | | d d",
        (
            ("precompute", "B[i] * C[i]", "i", "ip", "precomputed"),
            ("precompute", "B[i]", "ip", "iB", "B_new"),
            ("precompute", "C[i]", "ip", "iC", "C_new"),
            ("bound", "ip", "ib", 1024),
            ("split", "ib", "i0", "i1", 32),
        ),
    ),
    "tile_dotProduct_3": (
        "i1024",
        "A = B[i] * C[i] | | d d",
        (
            *(("bound", "i", "ib", 1024), ("split", "ib", "i0", "i1", 32)),
            ("precompute", "B[i] * C[i]", "i0", "i0p", "precomputed"),
            *(("precompute", f"{name}[i]", "i1", f"i{name}", f"{name}_new") for name in "BC"),
        ),
    ),
}
"""tests-workspaces.cpp. Tensors of order 4 have sides of 4 in place of 16."""


INSTEAD: dict[str, tuple[str, str]] = {
    **{
        f"copy (disabled) {n}": ("i3 j3", f"A[i,j] = b[{'jjii'[n]}] * ones[{'iijj'[n]}] | dd | {'dsds'[n]} d")
        for n in range(4)
    },
    "accumulate (disabled)": ("i8", "a[i] = a0[i] + b[i] | d | d s"),
    "indexVarSimple": ("i3 j3", "a[i,j] = place_i[i] + place_j[j] | dd | d d"),
    "indexVarMix": ("i3 j3", "a[i,j] = b[i,j] * (place_i[i] * 3 + place_j[j]) | dd | ss d d"),
    "precompute2D_add": ("i16 j16", "A[i,j] = B[i,j] + C[i,j] + D[i,j] | dd | dd dd dd"),
    "precompute4D_add": ("i4 j4 k4 l4", "A[i,j,k,l] = B[i,j,k,l] + C[i,j,k,l] + D[i,j,k,l] | dddd | dddd dddd dddd"),
}
"""What is written where a case is refused as it stands: a vector of ones, or of coordinates; a sum as it is."""

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "deMorganIntersect": (
        *("intersectAdd(s1, s2)", "intersectAddDeMorgan(s1, s2)", "intersectAdd(d1, d2)"),
        *("intersectAddDeMorgan(d1, d2)", "intersectAddDeMorgan(h1, h2)", "intersectAddDeMorgan(d1, h1)"),
        "intersectAddDeMorgan(d1, h1, s1)",
    ),
    "complementIntersect": tuple(
        f"complementIntersect({each})"
        for each in (
            *("s1, s2", "d1, d2", "s1, d1", "d1, s1", "h1, h2", "h1, s1", "s1, s2, s3", "d1, h1, s1", "h1, d1, s1"),
            "d1, d2, d3",
        )
    ),
    "complementUnion": tuple(
        f"complementUnion({each})"
        for each in ("s1, s2", "d1, d2", "s1, d1", "d1, s1", "h1, h2", "h1, s1", "s1, s2, s3")
    ),
    "xorLattice": tuple(f"xor({each})" for each in ("s1, s2", "d1, d2", "h1, h2", "d1, s1", "h1, s1", "h1, d1")),
    "singleCompUnion": tuple(f"identity({each})" for each in ("s1", "d1", "h1")),
    "edgeCases": (
        *(f"emptyIdentity({each})" for each in ("s1", "d1", "h1")),
        *("intersectEdgeCase(s1, s2)", "unionEdgeCase(s1, s2)"),
    ),
}
"""tests-merge_lattice.cpp: functions that a user defines, with the set of coordinates that they are of."""

HASHED = (
    *("h1", "-h1", "d1 * h1", "h1 * d1", "s1 * h1", "h1 * s1", "h1 * h2", "h1 * h2 * h3"),
    *("d1 + h1", "h1 + d1", "h1 + h2", "h1 + h2 + h3"),
)
"""The same file: levels that are hash tables."""


def refused() -> Iterator[tuple[str, str, str, str]]:
    """(file, test, expression, the words of the refusal) of what is refused as it is written."""
    for test, values in FUNCTIONS.items():
        for value in values:
            name, _, arguments = value.partition("(")
            expression = f"r[i] = {name}({re.sub(r'([dhs][0-9])', lambda found: found[0] + '[i]', arguments)}"
            yield "tests-merge_lattice.cpp", test, expression, f"function '{name}' is not one of exp, log, sqrt"
    for n in range(4):
        kept, gone = "jjii"[n], "iijj"[n]
        words = f"index '{gone}' of the result is in no operand"
        yield "tests-expr_storage.cpp", f"copy (disabled) {n}", f"A[i,j] = b[{kept}]", words
    yield "tests-expr.cpp", "accumulate (disabled)", "a[i] += b[i]", r"the result a\[i\] wants '=', not '\+'"
    yield "tests-expr.cpp", "indexVarSimple", "a[i,j] = i + j", "i is not given; there are none"
    yield "tests-expr.cpp", "indexVarMix", "a[i,j] = b[i,j] * (i * 3 + j)", "i is not given; there are b"


SUMS = {
    "precompute2D_add": ("B[i,j] + C[i,j]", ("i", "j"), ("i1", "j1"), "ws"),
    "precompute4D_add": ("B[i,j,k,l] + C[i,j,k,l]", ("i", "j", "k", "l"), ("i1", "j1", "k1", "l1"), "ws1"),
}
"""tests-workspaces.cpp: sums in a workspace."""


def _case(file: str, test: str, line: str, sizes: str, schedule: tuple[tuple, ...] = ()) -> Case:
    expression, format, formats = (part.strip() for part in line.split("|"))
    return Case(file, test.strip(), expression, format, tuple(formats.split()), sized(sizes), schedule)


def _lattice(value: str) -> str:
    read = dict.fromkeys(re.findall(r"[ds]\d", value))
    expression = re.sub(r"[ds]\d", lambda name: f"{name[0]}[i]", value)
    return f"r[i] = {expression} | d | {' '.join(name[0] for name in read)}"


def expressions() -> Iterator[Case]:
    """Those without a schedule."""
    for test, (sizes, lines) in STORAGE.items():
        yield from (_case("tests-expr_storage.cpp", test, line, sizes) for line in lines)
    for test, values in LATTICES.items():
        yield from (_case("tests-merge_lattice.cpp", test, _lattice(value), "i11") for value in values)
    for file, tests in PLAIN.items():
        yield from (_case(file, test, line, sizes) for test, (sizes, line) in tests.items())


def scheduled() -> Iterator[Case]:
    """Those with a schedule."""
    for test, (value, schedule) in CUT.items():
        yield _case("tests-merge_lattice.cpp", test, _lattice(value), "i11", schedule)
    for test, (sizes, line, schedule) in WORKSPACES.items():
        yield _case("tests-workspaces.cpp", test, line, sizes, schedule)


def instead() -> Iterator[Case]:
    """Those that compute what refused ones would."""
    for test, (sizes, line) in INSTEAD.items():
        yield _case("instead", test, line, sizes)
