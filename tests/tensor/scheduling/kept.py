"""Cases that were wrong once, made as small as they could be."""

from __future__ import annotations

from gnn_sparse_backend.tensor import Format
from tests.tensor.scheduling.cases import Case, Given

KEPT = (
    # positions of positions were taken for coordinates
    Case(
        "C[i,j] = A[i,j] * B[i,j]",
        {"A": "csr", "B": "dcsr"},
        {"i": 3, "j": 5},
        (("pos", "j", "v0", "A[i,j]"), ("pos", "v0", "v1", "B[i,j]")),
    ),
    # a result on the structure of an operand that is read by the producer alone
    Case(
        "S[i,j] = A[i,j] * U[i,k] * V[j,k]",
        {"A": "csr", "U": "dense", "V": "dense"},
        {"i": 3, "j": 4, "k": 2},
        (("precompute", "A[i,j]", ("i", "j"), ("p", "q"), "w"),),
        wanted=None,
    ),
    # a workspace inside of a workspace, whose index is a part of what is summed
    Case(
        "S[i,j] = A[i,j] * U[i,k] * V[j,k]",
        {"A": "csr", "U": "dense", "V": "csr"},
        {"i": 3, "j": 4, "k": 2},
        (
            ("precompute", "U[i,k] * V[j,k]", ("j",), ("v",), "w"),
            ("precompute", "U[i,k] * V[j,k]", ("k",), ("u",), "z"),
        ),
    ),
    # the index of a workspace is cut into parts where it is filled
    Case(
        "y[i] = A[i,j] * B[j,k] * x[k]",
        {"A": "csr", "B": "csc", "x": "dense"},
        {"i": 9, "j": 7, "k": 7},
        (("precompute", "A[i,j] * B[j,k] * x[k]", ("j",), ("v",), "w"), ("split", "v", "v0", "v1", 4)),
    ),
    # a loop around two producers visited the elements of one of them alone
    Case(
        "y[i] = X0[i] * X1[i,j] - X2[j] * X3[l] * X4[i]",
        {"X0": ("compressed",), "X1": "dense", "X2": "dense", "X3": "dense", "X4": "dense"},
        {"i": 5, "j": 5, "l": 2},
        (("precompute", "X0[i] * X1[i,j] + -1 * X2[j] * X3[l] * X4[i]", ("j",), ("v",), "w"),),
        seed=2,
    ),
    # lanes over the slots of a matrix that has none
    Case(
        "y[i] = A[i,j] * A[i,j]",
        {"A": "ell"},
        {"i": 0, "j": 0},
        (("precompute", "A[i,j]", ("j",), ("v",), "w"), ("parallelize", "v", "lanes", "atomics")),
        fill=20,
    ),
    # parts of a sum beside a result that is stored sparse
    Case(
        "y[i] = 2 * relu(X0[i]) * X1[k]",
        {"X0": ("compressed",), "X1": "dense"},
        {"i": 4, "k": 3},
        (("parallelize", "k", "threads", "parallel_reduction"),),
        fill=20,
        seed=3,
    ),
    # an expression of numbers alone has no loop at all
    Case("y = X0 * X1 + 2 * X2", {"X0": "dense", "X1": "dense", "X2": "dense"}, {}),
    # a result of one mode that is summed in a workspace has no index of its row
    Case(
        "y[j] = A[i,j] * x[i]",
        {"A": "csr", "x": "dense"},
        {"i": 4, "j": 5},
        (("split", "i", "v", "u", 3),),
        wanted=("compressed",),
    ),
    # what was said of an extent was not checked where functions and divisors are tensors of their own
    Case(
        "y[i,j] = X[i,j] / P[j]",
        {"X": "dense", "P": "dense"},
        {"i": 2, "j": 4},
        (("bound", "j", "v", 3, "most"),),
        given={"X": Given("torch"), "P": Given("torch")},
        gradient=True,
    ),
    # gradients of a result with dense modes under all of the elements that an operand stores
    Case(
        "y[i,j,k] = A[i,j] * x[k]",
        {"A": "csr", "x": "dense"},
        {"i": 3, "j": 2, "k": 2},
        wanted=None,
        way="evaluate",
        given={"A": Given("torch"), "x": Given("torch")},
        gradient=True,
    ),
    # gradients at the zeros of dense levels, in a result of another format
    Case(
        "S[i,j] = U[i,k] * V[j,k]",
        {"U": "dense", "V": Format(("compressed", "dense"), (1, 0))},
        {"i": 2, "j": 1, "k": 2},
        fill=40,
        seed=2,
        wanted="dcsr",
        given={"V": Given("coordinates")},
        gradient=True,
    ),
    # levels that were cut for an addend that tells no rows of the result
    Case(
        "y[i,j,k] = X1[j,l,k] * X2[i,j] + abs(X3[k,j,l] + X4[k]) * X6[j,k,i]",
        {
            "X1": "csf",
            "X2": "ell",
            "X3": ("compressed", "dense", "compressed"),
            "X4": ("compressed",),
            "X6": ("dense", "compressed", "compressed"),
        },
        {"i": 3, "j": 4, "l": 4, "k": 2},
        fill=20,
        seed=1,
        wanted="csf",
    ),
    # gradients at the zeros of dense levels of operands, which are walked in other formats
    Case(
        "y[l,j,i] = A[i,j] * B[l,i]",
        {"A": ("compressed", "dense"), "B": ("compressed", "dense")},
        {"i": 1, "j": 8, "l": 2},
        seed=1,
        wanted=None,
        way="einsum",
        given={"A": Given("coordinates")},
        gradient=True,
    ),
    Case(
        "y[l] = U[l,i] * A[i,j] * B[j,i]",
        {"U": "dense", "A": "ell", "B": ("compressed", "dense")},
        {"l": 4, "i": 8, "j": 1},
        seed=2,
        way="einsum",
        given={"B": Given("coordinates")},
        gradient=True,
    ),
    Case(
        "y[i,j] = U[i,j] * A[i,j] * B[i,j]",
        {"U": "dense", "A": "dcsr", "B": Format(("compressed", "dense"), (1, 0))},
        {"i": 2, "j": 1},
        seed=2,
        wanted="dcsr",
        given={"B": Given("coordinates")},
        gradient=True,
    ),
    # slots of which there are none, over coordinates that are read
    Case(
        "y[i,j] = A[i,j]",
        {"A": Format(("slots", "compressed"), (1, 0))},
        {"i": 0, "j": 0},
        wanted=None,
        way="evaluate",
    ),
    Case(
        "y[i,j] = A[i,j]",
        {"A": Format(("slots", "slots"), (1, 0))},
        {"i": 3, "j": 4},
        fill=0,
        way="evaluate",
    ),
    # two sums over one axis, both in lanes
    Case(
        "y[i] = A[i] * (u[k] - v[k])",
        {"A": ("compressed",), "u": "dense", "v": "dense"},
        {"i": 3, "k": 19},
        wanted=None,
        way="evaluate",
    ),
)
