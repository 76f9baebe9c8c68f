"""Decompose a sparse tensor into a sum of rank-one tensors (CP, by alternating least squares). The product of the
tensor with the factors of all modes but one, MTTKRP, is a line of index notation; its kernel visits non-zeros alone.

    python examples/cp_als.py
"""

import numpy as np

from gnn_sparse_backend import tensor as st

MTTKRP = (
    "A[i,r] = T[i,j,k] * B[j,r] * C[k,r]",
    "B[j,r] = T[i,j,k] * A[i,r] * C[k,r]",
    "C[k,r] = T[i,j,k] * A[i,r] * B[j,r]",
)


def sparse_tensor(rng, shape=(60, 50, 40), rank=4, per_column=6):
    """A tensor of exactly this rank whose factors have few rows that are not zero, stored as CSF."""
    factors = []
    for size in shape:
        factor = np.zeros((size, rank))
        for column in range(rank):
            factor[rng.choice(size, per_column, replace=False), column] = rng.random(per_column) + 0.5
        factors.append(factor)
    return st.array(np.einsum("ir,jr,kr->ijk", *factors), "csf")


def cp_als(tensor, rank, steps, rng):
    """(factors, relative errors): each step solves for one factor after the other, the others being fixed."""
    names = "ABC"
    factors = {name: rng.random((size, rank)) for name, size in zip(names, tensor.shape)}
    norm = np.sqrt(st.evaluate("s = T[i,j,k] * T[i,j,k]", T=tensor).to_dense().item())
    errors = []
    for _ in range(steps):
        for name, expression in zip(names, MTTKRP):
            others = {other: factors[other] for other in names if other != name}
            product = st.evaluate(expression, T=tensor, **others).to_dense()
            gram = np.prod([factor.T @ factor for factor in others.values()], axis=0)
            factors[name] = product @ np.linalg.pinv(gram)
        # |T - M|^2 = |T|^2 - 2 <T, M> + |M|^2, of which nothing needs M itself
        inner = st.evaluate("s = T[i,j,k] * A[i,r] * B[j,r] * C[k,r]", T=tensor, **factors).to_dense().item()
        model = np.prod([factor.T @ factor for factor in factors.values()], axis=0).sum()
        errors.append(np.sqrt(max(norm**2 - 2 * inner + model, 0)) / norm)
    return factors, errors


def main():
    rng = np.random.default_rng(0)
    tensor = sparse_tensor(rng)
    print(tensor)
    factors, errors = min((cp_als(tensor, 4, 20, rng) for _ in range(2)), key=lambda found: found[1][-1])
    print(f"relative error after 1 step {errors[0]:.3f}, after {len(errors)} steps {errors[-1]:.0e}")
    assert errors[-1] < 1e-3, errors
    exact = tensor.to_dense()
    model = np.einsum("ir,jr,kr->ijk", *factors.values())
    np.testing.assert_allclose(np.linalg.norm(exact - model) / np.linalg.norm(exact), errors[-1], atol=1e-6)
    kernel = st.compile(MTTKRP[0], T=tensor, B=factors["B"], C=factors["C"])
    print(kernel.stages("program"))


if __name__ == "__main__":
    main()
