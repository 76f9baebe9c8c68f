"""The gradients of relational products, by operators of the same family, whoever records them.

T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]> is linear in each operand. The operators are its derivatives,
and the gradient of each by any operand is again one of them, with another operand in the place of the cotangent:

    product   by G: (rows, F_out)               grad x: product of the transpose by W^T    grad w: sum    grad a: dot
    sum       by W: (R, blocks, F_in, F_out)    grad x: product of the transpose by H^T    grad g: product    grad a:
    dot
    dot       by A: (edges,)                    grad x: product of the transpose by W^T    grad w: sum    grad g:
    product

With bases, W[r] = sum over b of comp[r, b] * bases[b], T is linear in five operands, and the operators are its
derivatives

    basis_product   by G: (rows, F_out)
    basis_dot       by A: (edges,)
    basis_sums      by comp: (R, B), and by bases: (B, F_in, F_out), which share the sums of outer products

whose gradients are again these. Those of the sums come from the sum of two such T, which is one T with twice the bases.

``on`` is something with these six operators on the edges of one structure, `rgms_autograd` and `rgms_library` have one
each. transposed: x stands at the destinations. mean: A is divided by the number of edges of the relation into the
destination. needed: of each operand.
"""

from __future__ import annotations

import torch

_BY = {
    "x": lambda on, x, w, a, g, mean, transposed: on.product(g, w.transpose(2, 3), a, mean, not transposed),
    "w": lambda on, x, w, a, g, mean, transposed: on.sum(x, g, a, w.shape[1], mean, transposed),
    "a": lambda on, x, w, a, g, mean, transposed: on.dot(x, w, g, mean, transposed),
    "g": lambda on, x, w, a, g, mean, transposed: on.product(x, w, a, mean, transposed),
}
"""T differentiated by each of its operands. A shape alone is read of the operand that it is differentiated by."""


def _gradients(operands: str, by: str):
    """The gradients of T differentiated by one operand, ``by``, whose place the cotangent takes, as a function of the
    ``operands``.
    """

    def gradients(on, saved, needed, mean: bool, transposed: bool, cotangent) -> list:
        values = dict(zip(operands, saved)) | {by: cotangent}
        return [
            _BY[name](on, **values, mean=mean, transposed=transposed) if wanted else None
            for name, wanted in zip(operands, needed)
        ]

    return gradients


product_gradients = _gradients("xwa", "g")
sum_gradients = _gradients("xga", "w")
dot_gradients = _gradients("xwg", "a")


def _by_ends(on, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by x, a and g, those that are ``wanted``."""
    by_x = by_a = by_g = None
    if wanted[0]:
        by_x = on.basis_product(g, comp, bases.transpose(1, 2), a, mean, not transposed)
    if wanted[1]:
        by_a = on.basis_dot(x, comp, bases, g, mean, transposed)
    if wanted[2]:
        by_g = on.basis_product(x, comp, bases, a, mean, transposed)
    return by_x, by_a, by_g


def _by_weights(on, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by comp and bases, if either is ``wanted``."""
    return on.basis_sums(x, comp, bases, a, g, mean, transposed) if any(wanted) else (None, None)


def _basis_gradients(last: str):
    """The gradients of T differentiated by g as a function of x, comp, bases and a, the ``last`` operand; or by a,
    where that is g.
    """

    def gradients(on, saved, needed, mean: bool, transposed: bool, cotangent) -> tuple:
        x, comp, bases, other = saved
        wants_x, wants_comp, wants_bases, wants_other = needed
        a, g = (other, cotangent) if last == "a" else (cotangent, other)
        given = on, x, comp, bases, a, g, mean, transposed
        by_x, by_a, by_g = _by_ends(*given, (wants_x, wants_other and last == "a", wants_other and last == "g"))
        return by_x, *_by_weights(*given, (wants_comp, wants_bases)), by_a if last == "a" else by_g

    return gradients


basis_product_gradients = _basis_gradients("a")
basis_dot_gradients = _basis_gradients("g")


def basis_sums_gradients(on, saved, needed, mean: bool, transposed: bool, for_comp, for_bases) -> tuple:
    """By x, comp, bases, a, g."""
    x, comp, bases, a, g = saved
    wants_x, wants_comp, wants_bases, wants_a, wants_g = needed
    # T with for_comp in the place of comp, and T with for_bases in the place of bases, as one
    both = torch.cat([for_comp, comp], 1), torch.cat([bases, for_bases])
    by_x, by_a, by_g = _by_ends(on, x, *both, a, g, mean, transposed, (wants_x, wants_a, wants_g))
    by_comp, _ = _by_weights(on, x, comp, for_bases, a, g, mean, transposed, (wants_comp,))
    _, by_bases = _by_weights(on, x, for_comp, bases, a, g, mean, transposed, (wants_bases,))
    return by_x, by_comp, by_bases, by_a, by_g


__all__ = [
    "basis_dot_gradients",
    "basis_product_gradients",
    "basis_sums_gradients",
    "dot_gradients",
    "product_gradients",
    "sum_gradients",
]
