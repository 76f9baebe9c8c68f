"""The loops of one product, level by level: a buffer for each sum, and each factor where its indices are known.

    A[i,r] = B[i,j,k] * C[j,r] * D[k,r], with B in CSF          A[i,j] = B[i,j] * C[i,r] * D[j,r], with B in CSR

    rows (i):                                                   rows (i):
      Sum[r] = 0                                                  elements (j):
      sum (j):                                                      dot (r): Dot += C[i,r] * D[j,r]
        Sum_[r] = 0                                                 A[i,j] = Dot * B[i,j]
        sum_ (k): Sum_[r] += B[i,j,k] * D[k,r]
        Sum[r] += Sum_[r] * C[j,r]
      A[i,r] = Sum[r]

A factor leaves a sum only where products distribute over sums, and the sum has terms: what is not stored is zero,
whatever it would be multiplied by. The factored sum of a tensor's fibres is that of SPLATT (Smith et al., IPDPS 2015).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from ...compiler import Axis
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr, Var
from .loops.term_writer import Loop, TermWriter
from .notation import Access
from .terms import Nest, along

WALKED = ("dense", "compressed", "slots")
"""Levels whose loops meet each coordinate once."""


class Levels(TermWriter):
    """The loops of one product, level by level where they can be."""

    def emit(self, assign: bool) -> None:
        if not self.is_nestable:
            super().emit(assign)
            return
        spatial = [loop for loop in self.sparse_loops if loop.kind == "S"]
        self.sums = [loop for loop in self.sparse_loops if loop.kind == "R"]
        # the elements of a dot product are visited inside of their rows
        self.outer, self.inside = (spatial, []) if self.sums else (spatial[:-1], spatial[-1:])
        self.assign, self.places = assign, self._places()
        rows, outer = self.w.fresh(f"term{self.at}"), [loop.axis for loop in self.outer]
        names = [loop.name for loop in self.outer]
        with self.p.iterate(rows, outer, "S" * len(outer), names, self.fused(self.outer)) as at:
            known: dict[Axis, Var] = dict(zip(outer, at))
            self.w.nests.append(self._summed(rows, known) if self.sums else self._dots(rows, known))

    @property
    def is_nestable(self) -> bool:
        """Whether there is a sum with a buffer of its own."""
        if self.format is None or self.conditional or not set(self.format.levels) <= set(WALKED):
            return False
        kinds = "".join(loop.kind for loop in self.sparse_loops)
        if "RS" in kinds or not kinds.startswith("S") or len(self.free) + len(self.reduced) > 1:
            return False
        dense = [*self.free, *self.reduced]
        if not all(isinstance(loop.axis.length, int) for loop in dense):
            return False
        return "R" in kinds if not self.reduced else "R" not in kinds and len(kinds) > 1

    def _places(self) -> list[list[int]]:
        """For each depth d, the numbers of the factors that are multiplied within the first d sums alone."""
        loops = [*self.sums, *self.reduced]
        found: list[list[int]] = [[] for _ in range(len(loops) + 1)]
        known = [set(self._indices([*self.outer, *self.inside, *self.free]))]
        for loop in loops:
            known.append(known[-1] | set(self._indices([loop])))
        for number, factor in enumerate(self.term.factors):
            depth = len(loops)
            while depth and factor.indices <= known[depth - 1] and self._may_leave(loops[depth - 1]):
                depth -= 1
            found[depth].append(number)
        return found

    def _indices(self, given: list[Loop]) -> list[str]:
        """The indices that these loops settle."""
        sparse = self.term.sparse
        assert self.axes is not None and self.format is not None and sparse is not None
        axes, indices = self.axes, along(sparse, self.format)
        of_level = {axis: [index] for axis, index in axes.with_coordinates(indices)}
        if axes.merged > 1:
            of_level[axes.levels[0]] = list(indices[: axes.merged])
        of_dense = {axis: [index] for index, axis in self.w.index_axes.items()}
        return [index for loop in given for index in of_level.get(loop.axis, of_dense.get(loop.axis, ()))]

    def _may_leave(self, loop: Loop) -> bool:
        """Whether a factor may leave a sum: products distribute over it, and it has a term wherever it is computed,
        since coordinates that are stored have elements under them.
        """
        if not self.w.semiring.distributes:
            return False
        parent = loop.axis.parent
        if parent is None:
            return isinstance(loop.axis.length, int)
        assert self.axes is not None and self.format is not None
        levels = dict(zip(self.axes.levels, self.format.levels[self.axes.merged - 1 :]))
        return levels.get(parent) == "compressed" and levels.get(loop.axis) == "compressed"

    # Sums over elements, for each feature.

    def _summed(self, rows: str, known: dict[Axis, Var]) -> Nest:
        feature = self.free[0].axis if self.free else self.w.one
        name = self.free[0].name if self.free else self.w.fresh("one")
        total, elements = self._sum(0, known, feature, name)
        with self._over(feature, name, "row") as (k,):
            at = known | {feature: k}
            self._store(at, self._product(0, at, total[k]))
        return self._nest(rows, elements, self.sums[-1], feature)

    def _sum(self, depth: int, known: dict[Axis, Var], feature: Axis, name: str) -> tuple[BufferHandle, str]:
        """The sums of one level, and the name of the innermost iteration over elements."""
        w, p, loop = self.w, self.p, self.sums[depth]
        total = p.local(w.fresh("Sum"), (feature,), w.dtype)
        elements = w.fresh(f"sum{self.at}")
        if depth + 1 == len(self.sums):
            with p.iterate(elements, [loop.axis, feature], "RS", [loop.name, name]) as (element, k):
                here = known | {loop.axis: element, feature: k}
                with p.init():
                    total[k] = w.zero
                w.accumulate(total, k, self._product(depth + 1, here))
            return total, elements
        with self._over(feature, name, "zero") as (k,):
            total[k] = w.zero
        with p.iterate(elements, [loop.axis], "R", [loop.name]) as (element,):
            at = known | {loop.axis: element}
            inner, elements = self._sum(depth + 1, at, feature, name)
            with self._over(feature, name, "add") as (k,):
                w.accumulate(total, k, self._product(depth + 1, at | {feature: k}, inner[k]))
        return total, elements

    def _over(self, feature: Axis, name: str, what: str) -> AbstractContextManager[tuple[Var, ...]]:
        w = self.w
        return self.p.iterate(w.fresh(f"{what}{self.at}"), [feature], "S", [w.fresh(f"{name}_{what}")])

    # Dot products over features, at each element.

    def _dots(self, rows: str, known: dict[Axis, Var]) -> Nest:
        w, p, (element,), (term,) = self.w, self.p, self.inside, self.reduced
        elements, dot = w.fresh(f"elements{self.at}"), w.fresh(f"dot{self.at}")
        with p.iterate(elements, [element.axis], "S", [element.name]) as (at,):
            here = known | {element.axis: at}
            total = p.local(w.fresh("Dot"), (), w.dtype)
            with p.iterate(dot, [term.axis], "R", [term.name]) as (k,):
                with p.init():
                    total[()] = w.zero
                w.accumulate(total, (), self._product(1, here | {term.axis: k}))
            self._store(here, self._product(0, here, total[()]))
        return self._nest(rows, elements, element, term.axis, dot)

    # What is read and written.

    def _nest(self, rows: str, elements: str, loop: Loop, features: Axis, dot: str = "") -> Nest:
        """What a schedule has to know; loop: over elements, innermost."""
        width = features.length
        assert isinstance(width, int) and self.term.sparse is not None
        feature, gathered = "" if dot else features.name, self._gathered(loop, width)
        deep, adds = len(self.sums) > 1, self.w.semiring.is_ordinary
        return Nest(self.term.sparse.name, rows, elements, feature, dot, width, self.w.dtype, deep, gathered, adds)

    def _product(self, depth: int, known: dict[Axis, Var], summed: Expr | None = None) -> Expr:
        """The factors of a level, times what was summed in it."""
        at = self.coordinates(known)[0]
        factors = tuple(self.term.factors[number] for number in self.places[depth])
        coefficient = self.term.coefficient if depth == 0 else 1
        part = replace(self.term, factors=factors, coefficient=coefficient)
        return self.w.product(part, lambda access: self.element(access, at, known), summed)

    def _store(self, known: dict[Axis, Var], x: Expr) -> None:
        self.store(self.place(self.coordinates(known)[0], known), x, self.assign)

    def _gathered(self, loop: Loop, width: int) -> tuple[str, ...]:
        """The dense operands with a row of features for each coordinate of a loop."""
        index, *others = self._indices([loop])
        last = (*self.free, *self.reduced)
        if not last or width == 1 or others:
            return ()
        (feature,) = self._indices([last[0]])

        def has_rows(access: Access) -> bool:
            operand = self.w.operands[access.name]
            own = along(access, operand.format)
            return not operand.is_sparse and not operand.pattern and own == (index, feature)

        found = (self.w.buffers[access.name].value.name for access in self.term.accesses if has_rows(access))
        return tuple(dict.fromkeys(found))
