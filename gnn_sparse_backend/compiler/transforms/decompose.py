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
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from ..language.axes import Axis, Size, StageIError
from ..language.expr import Const, Expr, Load, Present, Select, Var, as_expr, both, children, differ, rebuild
from ..language.program import Buffer, Iteration, Program, Store, walk_iterations
from ..language.validate import validate
from .index_maps import IndexMap, check_index_maps

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
        index_map: old coordinates to new ones, on expressions.
        inverse_index_map: new coordinates to old ones, on expressions; it must undo ``index_map``.
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
    index_map: IndexMap
    inverse_index_map: IndexMap
    masked: bool = False


def decompose_format(program: Program, rules: list[FormatRewriteRule], *, copies: bool = True) -> Program:
    """Rewrite the buffers that the rules name into the rules' formats.

    The result has, in order: copies, initial values, and for each iteration that reads the old buffers one iteration
    per rule. New buffers are parameters. Rules may share axes and sizes with each other and with the program.

    A copy looks a coordinate up and finds one element, so copies are refused where coordinates may repeat. With
    copies=False there are none: the caller fills the new buffers, from the format's `value_position`.

    Raises StageIError where a rule does not fit the program, or where its index maps are not inverse to each other.
    """
    if not rules:
        raise StageIError("decompose_format: no rules")
    if len({rule.buffers for rule in rules}) != 1:
        raise StageIError("decompose_format: all rules must rewrite the same buffers")
    parts = [_Part(program, rule) for rule in rules]
    olds = set(parts[0].olds)
    iterations = [copy for part in parts for copy in part.copies()] if copies else []
    for it in program.iterations:
        if _writes(it, olds):
            raise StageIError(f"decompose_format: iteration {it.name!r} writes a buffer that is to be rewritten")
        if not _reads(it, olds):
            iterations.append(it)
            continue
        if it.init:
            iterations.append(_init(it, program))
        iterations += [part.compute(it) for part in parts]
    done = replace(
        program,
        sizes=_once(program.sizes, *(rule.sizes for rule in rules)),
        axes=_once(program.axes, *(rule.axes for rule in rules)),
        buffers=program.buffers + tuple(b for part in parts for b in part.new_buffers()),
        iterations=tuple(iterations),
    ).with_provenance(f"decompose_format({', '.join(rule.name for rule in rules)})")
    validate(done)
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


def _is_copy(it: Iteration) -> bool:
    store = it.body[0] if len(it.body) == 1 else None
    return isinstance(store, Store) and it.name == f"{COPY}_{store.buffer.name}"


def prune(program: Program) -> Program:
    """Drop buffers that no iteration touches, then axes and sizes that nothing stands on."""
    used: set[Buffer] = set()
    axes: set[Axis] = set()
    exprs: list[Expr] = []
    for it in walk_iterations(program.iterations):
        axes.update(it.axes)
        stores = [*it.init, *(s for s in it.body if isinstance(s, Store))]
        used.update(s.buffer for s in stores)
        exprs += [e for s in stores for e in (*s.indices, s.value)] + ([it.where] if it.where is not None else [])
        axes.update(a for b in it.locals for a in b.axes)
    sizes = set()
    for expr in _all(exprs):
        if isinstance(expr, Load):
            used.add(expr.buffer)
        sizes.update([expr.size] if hasattr(expr, "size") else [])
    buffers = tuple(b for b in program.buffers if b in used)
    axes.update(a for b in buffers for a in b.axes)
    axes = {up for axis in axes for up in axis.chain}
    sizes.update(e for a in axes for e in (a.length, a.nnz, a.nnz_cols) if isinstance(e, Size))
    done = replace(
        program,
        sizes=tuple(s for s in program.sizes if s in sizes),
        axes=tuple(a for a in program.axes if a in axes),
        buffers=buffers,
    )
    validate(done)
    return done


def _all(exprs: Iterable[Expr]) -> Iterator[Expr]:
    for expr in exprs:
        yield expr
        yield from _all(children(expr))


def _statements(it: Iteration) -> Iterator[Store]:
    for each in walk_iterations((it,)):
        yield from (*each.init, *(s for s in each.body if isinstance(s, Store)))


def _reads(it: Iteration, buffers: Container[Buffer]) -> bool:
    exprs = [e for s in _statements(it) for e in (*s.indices, s.value)]
    exprs += [each.where for each in walk_iterations((it,)) if each.where is not None]
    return any(isinstance(e, Load) and e.buffer in buffers for e in _all(exprs))


def _writes(it: Iteration, buffers: Container[Buffer]) -> bool:
    return any(s.buffer in buffers for s in _statements(it))


def _init(it: Iteration, program: Program) -> Iteration:
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
        return tuple(self.new.values()) + ((self.mask,) if self.mask else ())

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
        at = self._old_coordinates()
        out = []
        for old, new in self.new.items():
            rest = old.axes[len(self.before) :]
            tail = tuple(Var(f"{a.name.lower()}_{self.rule.name}") for a in rest)
            here = tuple(self.variables[a] for a in self.after)
            store = Store(new, here + tail, Load(old, at + tail))
            axes = self.after + rest
            out.append(Iteration(f"{COPY}_{new.name}", axes, "S" * len(axes), here + tail, (), (store,)))
        if self.mask:
            here = tuple(self.variables[a] for a in self.after)
            there = Present(Load(self.olds[0], at + _zeros(self.olds[0], len(self.before))))
            value = Select(there, Const(1, "int64"), Const(0, "int64"))
            store = Store(self.mask, here, value)
            out.append(Iteration(f"{COPY}_{self.mask.name}", self.after, "S" * len(self.after), here, (), (store,)))
        return out

    def compute(self, it: Iteration) -> Iteration:
        """The iteration over the new axes in place of the old ones, adding to what is there."""
        if not set(self.before) <= set(it.axes):
            raise StageIError(
                f"decompose_format: iteration {it.name!r} does not visit the axes {self.rule.axes_before}"
            )
        if any(isinstance(s, Iteration) for s in it.body) or it.fused:
            raise StageIError(f"decompose_format: iteration {it.name!r} is nested or fused; decompose first")
        kind_of = dict(zip(it.axes, it.kinds))
        new_kind = {new: kind_of[old] for old, news in self.map.items() for new in news}
        first = min(it.axes.index(a) for a in self.before)
        axes: list[Axis] = []
        kinds = ""
        for at, axis in enumerate(it.axes):
            if at == first:
                axes += self.after
                kinds += "".join(new_kind[a] for a in self.after)
            if axis not in self.before:
                axes.append(axis)
                kinds += kind_of[axis]
        variables = tuple(self.variables[a] if a in self.variables else it.variable(a) for a in axes)
        coordinate = dict(zip((it.variable(a) for a in self.before), self._old_coordinates()))
        body = tuple(
            Store(
                s.buffer,
                tuple(self._rewrite(e, it, coordinate) for e in s.indices),
                self._rewrite(s.value, it, coordinate),
            )
            for s in it.stores
        )
        where = None if it.where is None else self._rewrite(it.where, it, coordinate)
        if self.mask:
            stored = differ(Load(self.mask, tuple(self.variables[a] for a in self.after)), 0)
            where = stored if where is None else both(stored, where)
        return Iteration(f"{it.name}_{self.rule.name}", tuple(axes), kinds, variables, (), body, it.locals, (), where)

    def _rewrite(self, expr: Expr, it: Iteration, coordinate: dict[Var, Expr]) -> Expr:
        if isinstance(expr, Var):
            return coordinate.get(expr, expr)
        if isinstance(expr, Load) and expr.buffer in self.new:
            head = expr.indices[: len(self.before)]
            if head != tuple(it.variable(a) for a in self.before):
                raise StageIError(
                    f"decompose_format: {it.name!r} reads {expr.buffer.name!r} by other indices than its iterators"
                )
            tail = tuple(self._rewrite(e, it, coordinate) for e in expr.indices[len(self.before) :])
            return Load(self.new[expr.buffer], tuple(self.variables[a] for a in self.after) + tail)
        kids = children(expr)
        return rebuild(expr, tuple(self._rewrite(k, it, coordinate) for k in kids)) if kids else expr


def _zeros(buffer: Buffer, start: int) -> tuple[Expr, ...]:
    return tuple(Const(0, "int64") for _ in buffer.axes[start:])


__all__ = ["FormatRewriteRule", "decompose_format", "prune", "remove_copies", "split_copies"]
