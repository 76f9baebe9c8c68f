"""What TACO's generated C computes of an expression, on dense operands."""

from __future__ import annotations

import numpy as np

from benchmarks.algebra import taco
from tests.tensor.dense_values import accesses, result_indices
from tests.tensor.scheduling.cases import Case


def values(case: Case) -> np.ndarray:
    """Its result. Raises Unable where TACO refuses the expression, or is not there."""
    dense = {name: array.astype(np.float32) for name, array in case.operands().items()}
    result = result_indices(case.expression)
    name = case.expression.partition(" ")[0].partition("[")[0]
    text = case.expression.replace(" ", "").replace("[", "(").replace("]", ")")
    kind = np.float32 if result else np.float64  # a type is said beside a format, and a scalar has none
    out = np.zeros(tuple(case.sizes[index] for index in result), kind)
    order = list(dict.fromkeys(name for name, _ in accesses(case.expression)))
    formats = [f"{n}:{'d' * x.ndim}" for n, x in ((name, out), *((n, dense[n]) for n in order)) if x.ndim]
    built = taco.build(text, tuple(formats), "", "compute")
    operands = [taco.Operand(x.shape, "d" * x.ndim, values=x) for x in (out, *(dense[n] for n in order))]
    taco.Call(built, built.library.compute, operands, lambda _: out, False)()
    return out.astype(np.float64)
