"""Rules of a matrix in a program are those that are written for it, with tasks of rows and without."""

import pytest

from gnn_sparse_backend.compiler import ProgramBuilder, StageIError, decompose_format
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule, dbsr_rule, dia_rule, sr_bcrs_rule
from gnn_sparse_backend.compiler.transforms.format_rules import csr_rule, ell_rule, hyb_bucket_rule
from gnn_sparse_backend.compiler.transforms.place_rule import content, place_rule
from gnn_sparse_backend.compiler.transforms.rule_shape import matrix, shape_of

A = {"buffers": ("A",)}
BLOCKS = {"by_columns": True, **A}


def product(tasks, index_dtype="int64"):
    """Y = A X, of rows in tasks or not, with the sums of a row in a local buffer."""
    p = ProgramBuilder("product")
    m, n, nnz, features = p.sizes("height", "n", "nnz", "features")
    T = p.dense_fixed("T", p.size("num_tasks")) if tasks else None
    I = p.dense_variable("I", T, (m, m), "row_ptr", index_dtype) if tasks else p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), index_dtype)
    N, C = p.dense_fixed("N", n), p.dense_fixed("C", features)
    around = (T,) if tasks else ()
    A, X, Y = (p.buffer(name, axes, "float32") for name, axes in zip("AXY", ((*around, I, J), (N, C), (*around, I, C))))
    O = p.dense_fixed("O", 1)
    with p.iterate("tasks", around or (O,), "S") as t, p.iterate("rows", (I,), "S") as (i,):
        t = tuple(t) if tasks else ()
        S = p.local("S", (C,), "float32")
        with p.iterate("sum", (J, C), "RS") as (j, c):
            with p.init():
                S[c] = 0.0
            S[c] = S[c] + A[(*t, i, j)] * X[j, c]
        with p.iterate("out", (C,), "S", ("k",)) as (c,):
            Y[(*t, i, c)] = S[c]
    return p.finish()


RULES = {
    "csr": (lambda p, **n: csr_rule(p, **n, **A), False),
    "ell": (lambda p, **n: ell_rule(p, 3, own_rows=False, **n, **A), False),
    "bucket": (lambda p, **n: hyb_bucket_rule(p, 4, **{"tasks": None} | n, **A), False),
    "dia": (lambda p, **n: dia_rule(p, **n, **A), True),
    "bsr": (lambda p, **n: bsr_rule(p, (4, 8), **n, **BLOCKS), True),
    "dbsr": (lambda p, **n: dbsr_rule(p, (4, 2), **n, **BLOCKS), True),
    "sr_bcrs": (lambda p, **n: sr_bcrs_rule(p, (4, 2), **n, **BLOCKS), True),
}


@pytest.mark.short(28)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("tasks", [None, "T"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_rule_of_a_matrix_is_the_rule_of_the_program(name, tasks, masked):
    make, padded = RULES[name]
    program = product(tasks)
    own = {"masked": masked} if padded else {}
    if tasks and name not in ("csr", "ell"):
        own["tasks"] = tasks
    written = make(program, name="p0", **own)
    placed = place_rule(make(matrix(), name=name), program, name="p0", buffers=("A",), tasks=tasks, masked=masked)
    if name == "bucket" and not tasks:
        assert placed.axes == written.axes and placed.arrays == written.arrays
        return  # no row of this program is begun by it
    begin = [csr_rule(program, name="p9", **A)]
    found, wanted = (
        decompose_format(program, [*begin, rule], copies=False, within="tasks").script() for rule in (placed, written)
    )
    assert found == wanted


def test_how_rules_store():
    shapes = {name: shape_of(make(matrix(), name=name)) for name, (make, _) in RULES.items()}
    assert {name for name, shape in shapes.items() if shape.listed} == {"bucket", "dbsr"}
    assert {name for name, shape in shapes.items() if shape.beside} == {"bsr", "dbsr"}
    assert {name for name, shape in shapes.items() if shape.shifted} == {"dia"}
    assert {name: shape.unit for name, shape in shapes.items() if shape.unit != (1, 1)} == {
        "bsr": (4, 8),
        "dbsr": (4, 2),
        "sr_bcrs": (4, 1),
    }
    assert not any(shape.alike for shape in shapes.values())


def test_rules_that_store_alike_are_equal():
    alike = [content(bsr_rule(matrix(), (4, 8), name=name, **BLOCKS)) for name in ("bsr", "other")]
    assert alike[0] == alike[1]
    others = (
        bsr_rule(matrix(), (8, 4), **BLOCKS),
        bsr_rule(matrix(), (4, 8), **A),
        dbsr_rule(matrix(), (4, 8), **BLOCKS),
    )
    assert all(content(rule) != alike[0] for rule in others)


def test_sizes_are_those_of_the_rule_or_the_matrix():
    rule = csr_rule(matrix(), name="csr", **A)
    object.__setattr__(rule, "sizes", ())
    with pytest.raises(StageIError, match="the size nnz_csr is none of its sizes, nor m or n"):
        place_rule(rule, product(None), name="p0", buffers=("A",))
