"""Change the order in which a sparse iteration visits its axes (SparseTIR, section 3.2.2)."""

from __future__ import annotations

from dataclasses import replace

from ..language.axes import StageIError
from ..language.program import Iteration, Program, map_iterations
from ..language.validate import changed


def sparse_reorder(program: Program, iteration_name: str, order: tuple[str, ...]) -> Program:
    """Visit the axes of an iteration in `order`, given by their names.

    Refuses (StageIError) an order that is not a permutation of the axes, and one that puts an axis before the axis it
    depends on. Fused groups must stay together.

        iterate(I, J, K) "SRS"   ->   iterate(K, I, J) "SSR"
    """
    it = program.iteration(iteration_name)
    names = [a.name for a in it.axes]
    if sorted(order) != sorted(names):
        raise StageIError(
            f"sparse_reorder: {tuple(order)} is not a permutation of the axes {tuple(names)} of {iteration_name!r}"
        )
    axes = tuple(it.axes[names.index(n)] for n in order)
    for at, axis in enumerate(axes):
        if axis.parent in axes[at:]:
            raise StageIError(
                f"sparse_reorder: axis {axis.name!r} depends on {axis.parent.name!r} and cannot come before it"
            )
    kinds = "".join(it.kinds[names.index(n)] for n in order)
    variables = tuple(it.variables[names.index(n)] for n in order)

    def visit(found: Iteration) -> tuple[Iteration, ...]:
        if found.name != iteration_name:
            return (found,)
        return (replace(found, axes=axes, kinds=kinds, variables=variables),)

    step = f"sparse_reorder({iteration_name}, {', '.join(order)})"
    return changed(program, step, iterations=map_iterations(program.iterations, visit))
