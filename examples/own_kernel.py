"""Write a kernel in stage I, coordinate space, and print what each stage of the compiler makes of it, down to assembly.
The kernel is a layer of a GCN in one pass, relu(A B + bias); its result is compared with the interpreter's and SciPy's.

    python examples/own_kernel.py
"""

import numpy as np
import scipy.sparse

from gnn_sparse_backend.compiler import ProgramBuilder, compile_program, cpu_schedule, interpret, maximum


def spmm_bias_relu(features):
    """C[i, k] = max(0, bias[k] + sum over the non-zeros j of row i of A[i, j] * B[j, k])."""
    p = ProgramBuilder("spmm_bias_relu")
    m, n, nnz = p.sizes("m", "n", "nnz")  # arguments of the kernel; the width is compiled in
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"))
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    A = p.buffer("A", (I, J), "float32")
    B = p.buffer("B", (N, K), "float32")
    Bias = p.buffer("Bias", (K,), "float32")
    C = p.buffer("C", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Sum = p.local("Sum", (K,), "float32")  # stays in registers
        with p.iterate("sum", (J, K), "RS") as (j, k):
            with p.init():
                Sum[k] = 0.0
            Sum[k] = Sum[k] + A[i, j] * B[j, k]
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            C[i, f] = maximum(0.0, Sum[f] + Bias[f])  # in this order NaN stays NaN
    return p.finish()


def main():
    program = spmm_bias_relu(16)
    kernel = compile_program(program, cpu_schedule())
    print(kernel.stages())

    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random(50, 40, 0.1, "csr", np.float32, rng)
    b, bias = rng.standard_normal((40, 16), np.float32), rng.standard_normal(16, np.float32)
    c = np.empty((50, 16), np.float32)
    arguments = dict(m=50, n=40, nnz=matrix.nnz, indptr=matrix.indptr, indices=matrix.indices)
    arguments |= dict(A=matrix.data, B=b, Bias=bias, C=c)
    kernel(*(arguments[name] for name in program.parameter_names))  # writes into c
    print(f"{kernel}: the largest of {c.size} results is {c.max():.3f}")

    np.testing.assert_allclose(c, interpret(program, arguments)["C"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c, np.maximum(matrix @ b + bias, 0), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    main()
