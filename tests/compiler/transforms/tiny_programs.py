"""The smallest programs on which each transformation does something."""

from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.program import Program


def matrix(p, **kwargs):
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    return I, p.sparse_variable("J", I, (n, nnz), ("ptr", "idx"), **kwargs)


def spmm(**kwargs) -> Program:
    p = ProgramBuilder("spmm")
    I, J = matrix(p, **kwargs)
    N, K = p.dense_fixed("N", J.length), p.dense_fixed("K", 6)
    A, B, C = p.buffer("A", (I, J), "float32"), p.buffer("B", (N, K), "float32"), p.buffer("C", (I, K), "float32")
    with p.iterate("mul", (I, J, K), "SRS") as (i, j, k):
        with p.init():
            C[i, k] = 0
        C[i, k] = C[i, k] + A[i, j] * B[j, k]
    return p.finish()


def local_sum(body=None, extra=None) -> Program:
    """Row sums in a local buffer. body(p, names): other statements in the row; extra: after the usual ones."""
    p = ProgramBuilder("local_sum")
    I, J = matrix(p)
    N, K = p.dense_fixed("N", J.length), p.dense_fixed("K", 6)
    B, C = p.buffer("B", (N, K), "float32"), p.buffer("C", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        S = p.local("S", (K,), "float32")
        if body is not None:
            body(p, i, J, K, B, C, S)
        else:
            with p.iterate("sum", (J, K), "RS") as (j, k):
                with p.init():
                    S[k] = 0
                S[k] = S[k] + B[j, k]
            with p.iterate("out", (K,), "S", ("f",)) as (f,):
                C[i, f] = S[f]
        if extra is not None:
            extra(p, i, J, K, B, C, S)
    return p.finish()


def dot(start=0.0, term=None, width: object = 11, where=None) -> Program:
    """A dot product into a local buffer, row by row."""
    p = ProgramBuilder("dot")
    I, K = p.dense_fixed("I", p.size("m")), p.dense_fixed("K", p.size("width") if width is None else width)
    U, V, Y = p.buffer("U", (I, K), "float32"), p.buffer("V", (I, K), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        D = p.local("D", (), "float32")
        with p.iterate("sum", (K,), "R") as (k,):
            with p.init():
                D[()] = start
            if where is not None:
                p.where(where(k))
            D[()] = term(D, U[i, k], V[i, k]) if term else D[()] + U[i, k] * V[i, k]
        Y[i] = D[()]
    return p.finish()


def heads(body=None, where=None, kind="S") -> Program:
    """Three dot products of eight terms for each row. body(p, sum, h, D, Y): in the place of the sum and a store."""
    p = ProgramBuilder("heads")
    I, H, K = p.dense_fixed("I", p.size("m")), p.dense_fixed("H", 3), p.dense_fixed("K", 8)
    U, V, Y = p.buffer("U", (I, H, K), "float32"), p.buffer("V", (H, K), "float32"), p.buffer("Y", (I, H), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("heads", (H,), kind) as (h,):
            if where is not None:
                p.where(where(h))
            D = p.local("D", (), "float32")

            def add():
                with p.iterate("sum", (K,), "R") as (k,):
                    with p.init():
                        D[()] = 0.0
                    D[()] = D[()] + U[i, h, k] * V[h, k]

            if body is not None:
                body(add, D, Y, i, h, p)
            else:
                add()
                Y[i, h] = D[()] * 2.0
    return p.finish()
