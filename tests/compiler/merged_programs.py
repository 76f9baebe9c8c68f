"""Programs whose iterations walk several sparse axes together: every kind of lattice, and what stands around one."""

from __future__ import annotations

from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import both, cast, either, equal, number, present, select, stored
from tests.compiler.program_case import Case

TRUE, FALSE = number(1, "bool"), number(0, "bool")


def negated(condition):
    return equal(condition, FALSE)


def union(a, b):
    return either(a, b)


def difference(a, b):
    return both(a, negated(b))


def exclusive(a, b):
    return either(difference(a, b), difference(b, a))


def never(a, b):
    """Of what is not stored nothing is known, so that no walk is left."""
    return both(either(a, b), both(negated(a), negated(b)))


def one_with_all(a, b):
    """A coordinate of every kind is visited, so that nothing can be left out."""
    return either(either(a, b), TRUE)


def rows_of(p: ProgramBuilder, *names: str, t: str, unique: bool = True):
    """(I, J, axes, buffers): matrices in CSR of the same shape, as A on (I, JA)."""
    m, n, *counts = p.sizes("m", "n", *(f"n{name}" for name in names))
    I, J = p.dense_fixed("I", m), p.dense_fixed("J", n)
    axes = [
        p.sparse_variable(f"J{a}", I, (n, c), (f"J{a}_indptr", f"J{a}_indices"), t, unique=unique)
        for a, c in zip(names, counts)
    ]
    return I, J, axes, [p.buffer(a, (I, axis), "float32") for a, axis in zip(names, axes)]


def two_rows(condition, value):
    """D[i, j] = value(A[i, j], B[i, j]) where the condition holds of what is stored, and -1 elsewhere."""

    def make(t):
        p = ProgramBuilder(f"merged_{condition.__name__}")
        I, J, (JA, JB), (A, B) = rows_of(p, "A", "B", t=t)
        D = p.buffer("D", (I, J), "float32")
        with p.iterate("rows", (I,), "S") as (i,):
            with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
                D[i, j] = -1.0
            with p.iterate("columns", (J,), "S", merged=(JA, JB)) as (j,):
                p.where(condition(stored(JA, i, j), stored(JB, i, j)))
                D[i, j] = value(A[i, j], B[i, j])
        return p.finish()

    return make


def inner_product(t):
    """Y[i] = the sum of A[i, j] * B[i, j]: a reduction, whose first value the iteration around it writes."""
    p = ProgramBuilder("merged_inner_product")
    I, J, (JA, JB), (A, B) = rows_of(p, "A", "B", t=t)
    Y = p.buffer("Y", (I,), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Y[i] = 0.0
        with p.iterate("columns", (J,), "R", merged=(JA, JB)) as (j,):
            p.where(both(stored(JA, i, j), stored(JB, i, j)))
            Y[i] = Y[i] + A[i, j] * B[i, j]
    return p.finish()


def product_and_sum(t):
    """D = A * B + C, where a product with nothing is not taken; A alone is never walked."""
    p = ProgramBuilder("merged_product_and_sum")
    I, J, (JA, JB, JC), (A, B, C) = rows_of(p, "A", "B", "C", t=t)
    D = p.buffer("D", (I, J), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
            D[i, j] = 0.0
        with p.iterate("columns", (J,), "S", merged=(JA, JB, JC)) as (j,):
            product = both(stored(JA, i, j), stored(JB, i, j))
            p.where(either(product, stored(JC, i, j)))
            D[i, j] = select(product, A[i, j] * B[i, j], 0.0) + C[i, j]
    return p.finish()


def three_and_more(t):
    """The union of three where a condition on their values holds as well; how many there were is counted."""
    p = ProgramBuilder("merged_three")
    I, J, (JA, JB, JC), (A, B, C) = rows_of(p, "A", "B", "C", t=t)
    D, One = p.buffer("D", (I, J), "float32"), p.dense_fixed("One", 1)
    Count = p.buffer("Count", (I,), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Seen = p.local("Seen", (One,), "int64")
        Seen[0] = 0
        with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
            D[i, j] = 0.0
        with p.iterate("columns", (J,), "S", merged=(JA, JB, JC)) as (j,):
            anywhere = either(either(stored(JA, i, j), stored(JB, i, j)), present(C[i, j]))
            asked = either(anywhere, stored(JC, i, j))
            p.where(both(asked, A[i, j] + B[i, j] <= C[i, j]))
            D[i, j] = A[i, j] + B[i, j] - C[i, j]
            Seen[0] = Seen[0] + 1
        Count[i] = cast("float32", Seen[0])
    return p.finish()


def rows_and_columns(t):
    """A + B where rows without elements are not stored either: walks within a walk."""
    p = ProgramBuilder("merged_rows_and_columns")
    m, n, ra, rb, na, nb = p.sizes("m", "n", "ra", "rb", "na", "nb")
    Z, I, J = p.dense_fixed("Z", 1), p.dense_fixed("I", m), p.dense_fixed("J", n)
    IA, IB = (
        p.sparse_variable(f"I{a}", Z, (m, c), (f"I{a}_indptr", f"I{a}_indices"), t) for a, c in (("A", ra), ("B", rb))
    )
    JA, JB = (
        p.sparse_variable(f"J{a}", rows, (n, c), (f"J{a}_indptr", f"J{a}_indices"), t)
        for a, rows, c in (("A", IA, na), ("B", IB, nb))
    )
    A, B = p.buffer("A", (Z, IA, JA), "float32"), p.buffer("B", (Z, IB, JB), "float32")
    D = p.buffer("D", (I, J), "float32")
    with p.iterate("clear", (I, J), "SS", ("ic", "jc")) as (i, j):
        D[i, j] = 0.0
    with p.iterate("rows", (I,), "S", merged=(IA, IB)) as (i,):
        p.where(either(stored(IA, 0, i), stored(IB, 0, i)))
        with p.iterate("columns", (J,), "S", merged=(JA, JB)) as (j,):
            p.where(either(stored(JA, 0, i, j), stored(JB, 0, i, j)))
            D[i, j] = A[0, i, j] + B[0, i, j]
    return p.finish()


def row_looked_up(t):
    """The rows of A are looked up, by a number that is read from an array and may be nobody's."""
    p = ProgramBuilder("merged_row_looked_up")
    m, n, rows, ra, na, nb = p.sizes("m", "n", "rows", "ra", "na", "nb")
    Z, I, J = p.dense_fixed("Z", 1), p.dense_fixed("I", m), p.dense_fixed("J", n)
    IA = p.sparse_variable("IA", Z, (rows, ra), ("IA_indptr", "IA_indices"), t)
    JA = p.sparse_variable("JA", IA, (n, na), ("JA_indptr", "JA_indices"), t)
    JB = p.sparse_variable("JB", I, (n, nb), ("JB_indptr", "JB_indices"), t)
    A, B = p.buffer("A", (Z, IA, JA), "float32"), p.buffer("B", (I, JB), "float32")
    Row, Y = p.buffer("Row", (I,), "int32"), p.buffer("Y", (I,), "float32")
    with p.iterate("rows_of_b", (I,), "S") as (i,):
        Y[i] = 0.0
        with p.iterate("columns", (J,), "R", merged=(JA, JB)) as (j,):
            p.where(either(stored(JA, 0, Row[i], j), stored(JB, i, j)))
            Y[i] = Y[i] + A[0, Row[i], j] * 2 + B[i, j]
    return p.finish()


def sparse_product(t):
    """The rows of A @ B gathered in a dense workspace, which is then read where C stores something."""
    p = ProgramBuilder("merged_sparse_product")
    m, k, n, na, nb, nc = p.sizes("m", "k", "n", "na", "nb", "nc")
    I, K, J = p.dense_fixed("I", m), p.dense_fixed("K", k), p.dense_fixed("J", n)
    KA = p.sparse_variable("KA", I, (k, na), ("KA_indptr", "KA_indices"), t)
    JB = p.sparse_variable("JB", K, (n, nb), ("JB_indptr", "JB_indices"), t)
    JC = p.sparse_variable("JC", I, (n, nc), ("JC_indptr", "JC_indices"), t)
    A, B, C = p.buffer("A", (I, KA), "float32"), p.buffer("B", (K, JB), "float32"), p.buffer("C", (I, JC), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        W = p.local("W", (J,), "float32")
        with p.iterate("clear", (J,), "S", ("jw",)) as (j,):
            W[j] = 0.0
        with p.iterate("inner", (K,), "R", ("kk",), merged=(KA,)) as (kk,):
            p.where(stored(KA, i, kk))
            with p.iterate("columns", (J,), "S", merged=(JB,)) as (j,):
                p.where(stored(JB, kk, j))
                W[j] = W[j] + A[i, kk] * B[kk, j]
        with p.iterate("gathered", (J,), "S", ("jc",), merged=(JC,)) as (j,):
            p.where(stored(JC, i, j))
            C[i, j] = W[j]
    return p.finish()


def features(t):
    """Y[i, f] = the sum of A[i, j] * B[i, j] * X[j, f], the features in a vector loop within the walk."""
    p = ProgramBuilder("merged_features")
    I, J, (JA, JB), (A, B) = rows_of(p, "A", "B", t=t)
    F = p.dense_fixed("F", 4)
    X, Y = p.buffer("X", (J, F), "float32"), p.buffer("Y", (I, F), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Sum = p.local("Sum", (F,), "float32")
        with p.iterate("clear", (F,), "S", ("fc",)) as (f,):
            Sum[f] = 0.0
        with p.iterate("columns", (J,), "R", merged=(JA, JB)) as (j,):
            p.where(either(stored(JA, i, j), stored(JB, i, j)))
            with p.iterate("sums", (F,), "S", ("f",)) as (f,):
                Sum[f] = Sum[f] + (A[i, j] - B[i, j]) * X[j, f]
        with p.iterate("written", (F,), "S", ("fw",)) as (f,):
            Y[i, f] = Sum[f]
    return p.finish()


def two_vectors(t):
    """Vectors, so that the walk is the outermost loop; what both store is a local of the walk."""
    p = ProgramBuilder("merged_vectors")
    n, na, nb = p.sizes("n", "na", "nb")
    Z, J, One = p.dense_fixed("Z", 1), p.dense_fixed("J", n), p.dense_fixed("One", 1)
    JA, JB = (
        p.sparse_variable(f"J{a}", Z, (n, c), (f"J{a}_indptr", f"J{a}_indices"), t) for a, c in (("A", na), ("B", nb))
    )
    A, B = p.buffer("A", (Z, JA), "float32"), p.buffer("B", (Z, JB), "float32")
    D = p.buffer("D", (J,), "float32")
    with p.iterate("clear", (J,), "S", ("jc",)) as (j,):
        D[j] = 0.0
    with p.iterate("columns", (J,), "S", merged=(JA, JB)) as (j,):
        p.where(either(stored(JA, 0, j), stored(JB, 0, j)))
        Both = p.local("Both", (One,), "float32")
        Both[0] = A[0, j] * B[0, j]
        D[j] = Both[0] + A[0, j]
    return p.finish()


def _mn(rng, **extra):
    return {"m": int(rng.integers(1, 7)), "n": int(rng.integers(1, 7)), **extra}


def _picked(found, rng):
    found["Row"] = rng.integers(-1, found["rows"] + 1, found["Row"].shape).astype("int32")


CASES: dict[str, Case] = {
    f"merged_{condition.__name__}": Case(two_rows(condition, value), _mn, ("D",))
    for condition, value in (
        (union, lambda a, b: a + b),
        (both, lambda a, b: a * b),
        (difference, lambda a, b: a - b),
        (exclusive, lambda a, b: a - b),
        (never, lambda a, b: a + b),
        (one_with_all, lambda a, b: a + b),
    )
}
CASES |= {
    "merged_inner_product": Case(inner_product, _mn, ("Y",)),
    "merged_product_and_sum": Case(product_and_sum, _mn, ("D",)),
    "merged_three": Case(three_and_more, _mn, ("D", "Count")),
    "merged_rows_and_columns": Case(rows_and_columns, _mn, ("D",)),
    "merged_row_looked_up": Case(row_looked_up, lambda rng: _mn(rng, rows=4), ("Y",), _picked),
    "merged_sparse_product": Case(sparse_product, lambda rng: _mn(rng, k=5), ("C",)),
    "merged_features": Case(features, _mn, ("Y",)),
    "merged_vectors": Case(two_vectors, lambda rng: {"n": int(rng.integers(1, 9))}, ("D",)),
}
"""Walks of every kind, to be held against the interpreter, which tries every coordinate."""
