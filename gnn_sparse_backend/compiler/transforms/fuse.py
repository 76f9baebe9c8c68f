"""Visit several axes of one tree by a single loop over their elements (SparseTIR, section 3.2.3)."""

from __future__ import annotations

from dataclasses import replace

from ..language.axes import StageIError
from ..language.program import Iteration, Program, map_iterations
from ..language.validate import changed


def sparse_fuse(program: Program, iteration_name: str, group: tuple[str, ...]) -> Program:
    """Fuse the axes named in `group`: rows and non-zeros become one loop over non-zeros, which balances any skew.

    The meaning does not change; each element finds its rows by bisection. Refuses (StageIError) axes that are not of
    the iteration, not consecutive in it, or not one tree from its root down, and a fusion of spatial with reduction
    axes under an init (write the initial values in an iteration of their own).

        for i in I: for j in J(i): body(i, j)   ->   for p in elements(J): i = owner(p); body(i, p - indptr[i])
    """
    it = program.iteration(iteration_name)
    names = [a.name for a in it.axes]
    for name in group:
        if name not in names:
            raise StageIError(
                f"sparse_fuse: iteration {iteration_name!r} does not visit axis {name!r}; it visits {', '.join(names)}"
            )
        if any(name in [a.name for a in other] for other in it.fused):
            raise StageIError(f"sparse_fuse: axis {name!r} is fused already")
    fused = it.fused + (tuple(it.axes[names.index(n)] for n in group),)

    def visit(found: Iteration) -> tuple[Iteration, ...]:
        return (replace(found, fused=fused),) if found.name == iteration_name else (found,)

    # refuses what cannot be fused
    step = f"sparse_fuse({iteration_name}, {', '.join(group)})"
    return changed(program, step, iterations=map_iterations(program.iterations, visit))
