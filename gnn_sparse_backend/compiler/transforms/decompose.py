"""Format decomposition: one sparse buffer becomes several, each in a format of its own (SparseTIR, section 3.2.1).

    C[i, k] = sum over j of A[i, j] * B[j, k]                              with A in CSR, rules "bsr" and "ell"
  ->
    copy_bsr (IO, JO, II, JI):  A_bsr[io, jo, ii, ji] = A[io * b + ii, jo * b + ji]
    copy_ell (I2, J2):          A_ell[i2, j2] = A[i2, j2]
    spmm_init (I, K):           C[i, k] = 0
    spmm_bsr (IO, JO, II, JI, K):  C[io * b + ii, k] += A_bsr[io, jo, ii, ji] * B[jo * b + ji, k]
    spmm_ell (I2, J2, K):          C[i2, k] += A_ell[i2, j2] * B[j2, k]

The new formats together must store every non-zero of the old one exactly once; the rules' index arrays say which goes
where, and they are inputs of the program. The copies depend on values alone of the old buffers: `split_copies` takes
them out, to run once.

Where formats share no row, what is done for a row stays together, whatever it is, with its accumulators:

    rows (I):                                   rows_w4 (I_w4):
      sum (J): S = S + A[i,j] * B[j]     ->       sum_w4 (J_w4): S_w4 = S_w4 + A_w4[i,j] * B[j]
      out:     C[i] = S / D[i]                    out_w4:        C[Rows_w4[i]] = S_w4 / D[Rows_w4[i]]
                                                rows_w8 (I_w8): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from ..language.axes import Axis, Size, StageIError
from ..language.expr import Const, Expr, Load, Present, Select, SizeOf, Var, as_expr, both, differ, map_children
from ..language.program import (
    Buffer,
    Iteration,
    Program,
    Store,
    expressions_in,
    loads_in,
    map_store,
    stores_in,
    walk_iterations,
)
from ..language.validate import changed, validate
from .index_maps import IndexMap, check_index_maps
from .passes import one_pass

COPY = "copy"

Member = TypeVar("Member")


@dataclass(frozen=True)
class FormatRewriteRule:
    """How a part of the old buffers is stored in a new format.

    Attributes:
        name: suffix of the new buffers and iterations.
        sizes, axes: what the new format adds to the program, parents first.
        buffers: names of the old buffers, which all stand on `axes_before`.
        axes_before, axes_after: names of the old and new axes.
        axis_map: for each old axis, the new ones that take its place where it is iterated over; the kind is inherited.
        index_map: old coordinates to new ones, on expressions; None where index arrays alone know.
        inverse_index_map: new coordinates to old ones, on expressions; it must undo ``index_map``.
        arrays: index arrays of the format beside those of its axes, which `inverse_index_map` reads.
        masked: the format stores elements that are no non-zeros (a block). A mask beside the values tells them apart,
            so that their zeros never meet an infinity.
    """

    name: str
    sizes: tuple[Size, ...]
    axes: tuple[Axis, ...]
    buffers: tuple[str, ...]
    axes_before: tuple[str, ...]
    axes_after: tuple[str, ...]
    axis_map: dict[str, tuple[str, ...]]
    index_map: IndexMap | None
    inverse_index_map: IndexMap
    arrays: tuple[Buffer, ...] = ()
    masked: bool = False


def decompose_format(
    program: Program, rules: list[FormatRewriteRule], *, copies: bool = True, disjoint: bool = False
) -> Program:
    """Rewrite the buffers that the rules name into the rules' formats.

    The result has, in order: copies, initial values, and one iteration per rule for each iteration that reads the old
    buffers, or visits the old axes for their coordinates alone. New buffers are parameters. Rules may share axes and
    sizes with each other and with the program.

    A copy looks a coordinate up and finds one element, so copies are refused where coordinates may repeat. With
    copies=False there are none: the caller fills the new buffers, from the format's `value_position`.

    Where an iteration visits all old axes itself, the parts of a row add to its result in memory. Where it visits some
    of them inside others, with local buffers and statements around, every rule is a pass over the same rows that goes
    on from the results of the one before (`passes`); so rules must leave the axes that it begins with as they are.

    disjoint: each row is stored whole by one rule, once, or by none, and then it is not visited at all. Then initial
    values, and whatever is done around the old axes, stay with the row.

    Raises StageIError where a rule does not fit the program, or where its index maps are not inverse to each other.
    """
    if not rules:
        raise StageIError("decompose_format: no rules")
    if len({rule.buffers for rule in rules}) != 1:
        raise StageIError("decompose_format: all rules must rewrite the same buffers")
    if copies and not rules[0].buffers:
        raise StageIError("decompose_format: rules that rewrite no buffers have nothing to copy; pass copies=False")
    parts = [_Part(program, rule) for rule in rules]
    olds = set(parts[0].olds)
    iterations = [copy for part in parts for copy in part.copies()] if copies else []
    for it in program.iterations:
        if _stored((it,)) & olds:
            raise StageIError(f"decompose_format: iteration {it.name!r} writes a buffer that is to be rewritten")
        if not parts[0].concerns(it):
            iterations.append(it)
            continue
        passes = not disjoint and not set(parts[0].before) <= set(it.axes)
        apart = it.init and (not disjoint or any(rule.masked for rule in rules))
        if apart:
            iterations.append(_init(it))
        for part in parts:
            source = replace(it, init=()) if apart else it
            if passes:
                source = one_pass(source, part.moved(it), part is parts[0], part is parts[-1])
            iterations.append(part.compute(source, {}, {}))
    done = changed(
        program,
        f"decompose_format({', '.join(rule.name for rule in rules)})",
        sizes=_once(program.sizes, *(rule.sizes for rule in rules)),
        axes=_once(program.axes, *(rule.axes for rule in rules)),
        buffers=program.buffers + tuple(b for part in parts for b in part.new_buffers()),
        iterations=tuple(iterations),
    )
    return done if copies else prune(done)


def _once(*groups: Iterable[Member]) -> tuple[Member, ...]:
    """All members of the groups in order, equal ones once."""
    return tuple(dict.fromkeys(member for group in groups for member in group))


def split_copies(program: Program) -> tuple[Program | None, Program]:
    """(the copies alone, the program without them): run the first once per structure or value, the second every time.

    The second no longer has the old buffers and their structure among its parameters, unless it still reads them.
    """
    copies = tuple(takewhile(_is_copy, program.iterations))
    rest = program.iterations[len(copies) :]
    first = prune(replace(program, name=f"{program.name}_copy", iterations=copies)) if copies else None
    return first, prune(replace(program, iterations=rest))


def remove_copies(program: Program) -> Program:
    """The program without its copies; the new buffers must then be filled by whoever calls it."""
    return split_copies(program)[1]


def split_parts(program: Program) -> tuple[Program, ...]:
    """Each iteration of the program by itself, with what it needs: for parts that are launched one by one."""
    return tuple(prune(replace(program, iterations=(it,))) for it in program.iterations)


def _is_copy(it: Iteration) -> bool:
    store = it.body[0] if len(it.body) == 1 else None
    return isinstance(store, Store) and it.name == f"{COPY}_{store.buffer.name}"


def prune(program: Program) -> Program:
    """Drop buffers that no iteration touches, then axes and sizes that nothing stands on."""
    used = _stored(program.iterations) | _loaded(program.iterations)
    iterations = list(walk_iterations(program.iterations))
    buffers = tuple(b for b in program.buffers if b in used)
    standing = {a for b in (*buffers, *(b for it in iterations for b in it.locals)) for a in b.axes}
    axes = {up for axis in standing.union(*(it.axes for it in iterations)) for up in axis.chain}
    sizes = {e.size for e in expressions_in(program.iterations) if isinstance(e, SizeOf)}
    sizes.update(e for a in axes for e in (a.length, a.nnz, a.nnz_cols) if isinstance(e, Size))
    done = replace(
        program,
        sizes=tuple(s for s in program.sizes if s in sizes),
        axes=tuple(a for a in program.axes if a in axes),
        buffers=buffers,
    )
    validate(done)
    return done


def _stored(iterations: tuple[Iteration, ...]) -> set[Buffer]:
    return {store.buffer for store in stores_in(iterations)}


def _loaded(iterations: tuple[Iteration, ...]) -> set[Buffer]:
    return {load.buffer for load in loads_in(iterations)}


def _init(it: Iteration) -> Iteration:
    """The initial values in an iteration of their own: every part adds to them."""
    if any(a.parent in it.reduction for a in it.spatial):
        raise StageIError(f"decompose_format: iteration {it.name!r} has init on spatial axes that hang on reductions")
    variables = tuple(it.variable(a) for a in it.spatial)
    return Iteration(f"{it.name}_init", it.spatial, "S" * len(it.spatial), variables, (), it.init)


class _Part:
    """One rule applied to one program."""

    def __init__(self, program: Program, rule: FormatRewriteRule) -> None:
        self.rule, self.program = rule, program
        where = f"rule {rule.name!r}"
        self.before = tuple(program.axis(name) for name in rule.axes_before)
        by_name = {a.name: a for a in (*program.axes, *rule.axes)}
        for name in (*rule.axes_after, *(n for names in rule.axis_map.values() for n in names)):
            if name not in by_name:
                raise StageIError(f"{where}: there is no axis {name!r}")
        self.after = tuple(by_name[name] for name in rule.axes_after)
        self.map = {program.axis(old): tuple(by_name[n] for n in new) for old, new in rule.axis_map.items()}
        mapped = sorted(a.name for new in self.map.values() for a in new)
        if set(self.map) != set(self.before) or mapped != sorted(rule.axes_after):
            raise StageIError(f"{where}: axis_map must take {rule.axes_before} to each of {rule.axes_after} once")
        self.olds = tuple(program.buffer(name) for name in rule.buffers)
        for old in self.olds:
            if old.axes[: len(self.before)] != self.before:
                raise StageIError(f"{where}: buffer {old.name!r} does not begin with the axes {rule.axes_before}")
        self.new = {
            old: Buffer(f"{old.name}_{rule.name}", self.after + old.axes[len(self.before) :], old.dtype)
            for old in self.olds
        }
        self.mask = Buffer(f"mask_{rule.name}", self.after, "uint8") if rule.masked else None
        self.variables = {axis: Var(axis.name.lower()) for axis in self.after}
        check_index_maps(rule, self.before, self.after)

    def new_buffers(self) -> tuple[Buffer, ...]:
        return (*self.rule.arrays, *self.new.values(), *((self.mask,) if self.mask else ()))

    def _old_coordinates(self) -> tuple[Expr, ...]:
        found = self.rule.inverse_index_map(*(self.variables[a] for a in self.after))
        return tuple(as_expr(e) for e in found)

    def copies(self) -> list[Iteration]:
        """Fill the new buffers, and the mask, from the old ones; an absent element is zero."""
        for axis in self.before:
            if not axis.unique:
                raise StageIError(
                    f"decompose_format: coordinates of axis {axis.name!r} may repeat, and a copy would find only one "
                    f"of them; "
                    f"pass copies=False and fill {', '.join(b.name for b in self.new_buffers())} from the format's "
                    f"value_position"
                )
        at, here = self._old_coordinates(), tuple(self.variables.values())
        out = []
        for old, new in self.new.items():
            rest = old.axes[len(self.before) :]
            tail = tuple(Var(f"{a.name.lower()}_{self.rule.name}") for a in rest)
            store = Store(new, here + tail, Load(old, at + tail))
            axes = self.after + rest
            out.append(Iteration(f"{COPY}_{new.name}", axes, "S" * len(axes), here + tail, (), (store,)))
        if self.mask:
            zeros = tuple(Const(0, "int64") for _ in self.olds[0].axes[len(self.before) :])
            there = Present(Load(self.olds[0], at + zeros))
            value = Select(there, Const(1, "int64"), Const(0, "int64"))
            store = Store(self.mask, here, value)
            out.append(Iteration(f"{COPY}_{self.mask.name}", self.after, "S" * len(self.after), here, (), (store,)))
        return out

    def concerns(self, it: Iteration) -> bool:
        """Whether the iteration reads the old buffers, or visits the old axes and no other buffer on them."""
        loaded = _loaded((it,))
        if loaded & set(self.olds):
            return True
        visited = {a for each in walk_iterations((it,)) for a in each.axes}
        others = {a for b in loaded | _stored((it,)) for a in b.axes if a.is_sparse}
        return set(self.before) <= visited and not others & set(self.before)

    def moved(self, it: Iteration) -> list[Axis]:
        """The axes that passes over the rows of the iteration visit different elements of."""
        moved = [a for a in self.before if self.map[a] != (a,)]
        if set(moved) & set(it.axes):
            raise StageIError(
                f"decompose_format: iteration {it.name!r} does not visit the axes {self.rule.axes_before} itself; "
                "pass disjoint=True where each row is stored whole by one rule"
            )
        return moved

    def compute(self, it: Iteration, at: dict[Axis, Var], locals_: dict[Buffer, Buffer]) -> Iteration:
        """The iteration, and those in it, over the new axes in place of the old ones.

        at: iterators of the old axes that enclosing iterations visit. locals_: their local buffers, and those of the
        part.
        """
        mine = tuple(a for a in self.before if a in it.axes)
        if mine and it.fused:
            raise StageIError(f"decompose_format: iteration {it.name!r} is fused; decompose first")
        for local in it.locals:
            if set(self.before) & set(local.axes):
                raise StageIError(f"decompose_format: local buffer {local.name!r} stands on an axis that is replaced")
        at = at | {a: it.variable(a) for a in mine}
        locals_ = locals_ | {b: replace(b, name=f"{b.name}_{self.rule.name}") for b in it.locals}
        kind_of = dict(zip(it.axes, it.kinds)) | {new: it.kinds[it.axes.index(a)] for a in mine for new in self.map[a]}
        new = tuple(a for a in self.after if any(a in self.map[old] for old in mine))
        axes = _once(*(new if axis in mine else (axis,) for axis in it.axes))
        change = self._change(it, at, locals_)
        where = self._inside(mine, at) + ([] if it.where is None else [change(it.where)])
        return Iteration(
            f"{it.name}_{self.rule.name}",
            axes,
            "".join(kind_of[a] for a in axes),
            tuple(self.variables[a] if a in new else it.variable(a) for a in axes),
            tuple(map_store(s, change) for s in it.init),
            tuple(self.compute(s, at, locals_) if isinstance(s, Iteration) else map_store(s, change) for s in it.body),
            tuple(locals_[b] for b in it.locals),
            it.fused,
            functools.reduce(both, where) if where else None,
        )

    def _inside(self, mine: tuple[Axis, ...], at: Collection[Axis]) -> list[Expr]:
        """Conditions for what is no element of the matrix: padding of a block, and rows beyond the last."""
        if self.mask is None or not mine:
            return []
        if len(at) == len(self.before):
            return [differ(Load(self.mask, self._here()), 0)]
        old = dict(zip(self.before, self._old_coordinates()))
        return [old[a] < as_expr(a.length) for a in mine if not a.is_sparse]

    def _change(self, it: Iteration, at: dict[Axis, Var], locals_: dict[Buffer, Buffer]) -> Callable[[Expr], Expr]:
        """An expression of an iteration, in terms of what takes the place of old iterators and buffers."""
        coordinate = {at[a]: e for a, e in zip(self.before, self._old_coordinates()) if a in at}

        def change(expr: Expr) -> Expr:
            if isinstance(expr, Var):
                return coordinate.get(expr, expr)
            if not isinstance(expr, Load):
                return map_children(expr, change)
            kids = tuple(map(change, expr.indices))
            if expr.buffer not in self.new:
                repeated = [a.name for a in expr.buffer.axes if a in self.before and not a.unique]
                if repeated:
                    raise StageIError(
                        f"decompose_format: {it.name!r} would look {expr.buffer.name!r} up by coordinates, which may "
                        f"repeat on axis {repeated[0]!r}; name the buffer in the rules"
                    )
                return Load(locals_.get(expr.buffer, expr.buffer), kids)
            depth = len(self.before)
            if expr.indices[:depth] != tuple(at.get(a) for a in self.before):
                raise StageIError(
                    f"decompose_format: {it.name!r} reads {expr.buffer.name!r} by other indices than its iterators"
                )
            return Load(self.new[expr.buffer], self._here() + kids[depth:])

        return change

    def _here(self) -> tuple[Expr, ...]:
        """Indices of the new element that is visited."""
        return tuple(self.variables.values())
