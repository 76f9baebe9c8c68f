"""Rows in buckets of equal length: everything that is done for a row, once for each length, which is then static.

    rows (G, I):                               rows_w4 (I_w4):
      edges (J): S += A[E[g,i,j]] * B[j]   ->    edges_w4 (J_w4): S_w4 += A[E_w4[i,j]] * B[j]
      out: C[g,i] = S                            out_w4: C[Rows_w4[i]] = S_w4
                                               rows_w8 (I_w8): ...

Bucket w4 has count_w4 rows of 4 slots, padded with coordinates of -1: ELL, the pieces of hyb(c, k) (Ye et al.,
SparseTIR, section 4.2.1). As the number of slots is known, loops over them are unrolled, and all rows of a bucket take
equally long. `decompose_format` rewrites flat iterations into such pieces, which add to their results in memory; here
the program of a row stays whole, with its accumulators and what it does at the end.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.axes import Axis, Size, StageIError, dense_fixed, given, sparse_fixed
from ..language.expr import Expr, Load, Var, children, rebuild
from ..language.program import Buffer, Iteration, Program, Store, map_store, walk_iterations
from .decompose import prune


def bucket_rows(program: Program, columns: str, widths: tuple[int, ...]) -> Program:
    """Put the rows of the sparse variable axis `columns` into buckets of ``widths`` slots.

    The rows are a ragged axis of the groups that its parent is (`programs.operands.Edges`). Parameters that stand on
    rows become arrays of rows: (m, ...); those that stand on non-zeros, and the column indices, get one array for each
    bucket: (count, width, ...), ``<name>_w<width>``. New parameters, for each bucket: the size count, and Rows,
    (count,), the row of each bucket row, int32 or int64 as the column indices. A row may be in several buckets or none:
    what is done for a bucket row is stored at its row, and which rows there are, each once, is the caller's to say.

    Refuses (StageIError) an axis that is no such one, widths that repeat or are below 1, and a program with an
    iteration that does not begin with the groups and their rows, or that uses the coordinate of a row or a group as a
    value.
    """
    J = program.axis(columns)
    I = J.parent
    if J.kind != "sparse_variable" or I is None or I.kind != "dense_variable" or given(I.parent).kind != "dense_fixed":
        raise StageIError(f"bucket_rows: axis {columns!r} is not sparse-variable under rows in groups")
    if not widths or len(set(widths)) != len(widths) or min(widths) < 1:
        raise StageIError(f"bucket_rows: widths {widths} are not different numbers of slots")
    for it in program.iterations:
        if it.axes[:2] != (I.parent, I) or it.kinds[:2] != "SS" or it.fused or it.init:
            raise StageIError(
                f"bucket_rows: iteration {it.name!r} does not begin with axes {given(I.parent).name!r} and {I.name!r}"
            )
    M = dense_fixed("M", I.length)
    buckets = [_Bucket(program, I, J, M, width) for width in widths]
    onto_rows = {b: replace(b, axes=(M, *b.axes[2:])) for b in program.buffers if I in b.axes and J not in b.axes}
    for bucket in buckets:
        bucket.onto_rows = onto_rows
    kept = [onto_rows.get(b, b) for b in program.buffers if J not in b.axes]
    inputs = [b for bucket in buckets for b in (bucket.rows, *bucket.on_edges.values())]
    done = replace(
        program,
        sizes=program.sizes + tuple(bucket.count for bucket in buckets),
        axes=(
            *(a for a in program.axes if a not in (I, J)),
            M,
            *(a for bucket in buckets for a in (bucket.I, bucket.J)),
        ),
        buffers=(*inputs, *kept),
        iterations=tuple(bucket.iteration(it) for bucket in buckets for it in program.iterations),
    )
    return prune(done.with_provenance(f"bucket_rows({columns}, {widths})"))


class _Bucket:
    """One bucket's copy of the iterations. onto_rows: buffers on rows, and what they are afterwards."""

    onto_rows: dict[Buffer, Buffer]

    def __init__(self, program: Program, I: Axis, J: Axis, M: Axis, width: int) -> None:
        self.old_rows, self.old_columns, self.suffix = I, J, f"_w{width}"
        self.count = Size(f"count{self.suffix}")
        self.I = dense_fixed(f"{I.name}{self.suffix}", self.count)
        self.J = sparse_fixed(
            f"{J.name}{self.suffix}",
            self.I,
            (J.length, width),
            f"{J.indices}{self.suffix}",
            J.index_dtype,
            sorted=False,
            unique=False,
            padded=True,
        )
        self.rows = Buffer(f"Rows{self.suffix}", (self.I,), J.index_dtype)
        self.on_edges = {
            b: Buffer(f"{b.name}{self.suffix}", (self.I, self.J, *b.axes[3:]), b.dtype)
            for b in program.buffers
            if J in b.axes
        }
        locals_ = [b for it in walk_iterations(program.iterations) for b in it.locals]
        if any(I in b.axes or J in b.axes for b in locals_):
            raise StageIError("bucket_rows: a local buffer stands on rows or non-zeros")
        self.locals = {b: replace(b, name=f"{b.name}{self.suffix}") for b in locals_}
        self.row: Var | None = None
        self.group: Var | None = None

    def iteration(self, it: Iteration) -> Iteration:
        axes, kinds, variables = it.axes, it.kinds, it.variables
        if self.old_rows in axes:
            self.group, self.row = variables[:2]
            axes, kinds, variables = (self.I, *axes[2:]), kinds[1:], variables[1:]
        axes = tuple(self.J if a == self.old_columns else a for a in axes)
        return replace(
            it,
            name=f"{it.name}{self.suffix}",
            axes=axes,
            kinds=kinds,
            variables=variables,
            init=tuple(self._store(s) for s in it.init),
            body=tuple(self.iteration(s) if isinstance(s, Iteration) else self._store(s) for s in it.body),
            locals=tuple(self.locals[b] for b in it.locals),
            where=None if it.where is None else self._expr(it.where),
        )

    def _store(self, store: Store) -> Store:
        return map_store(store, self._expr)

    def _expr(self, expr: Expr) -> Expr:
        if expr in (self.row, self.group):
            raise StageIError(f"bucket_rows: the coordinate {expr.name!r} of a row or a group is used as a value")
        if not isinstance(expr, Load):
            kids = tuple(self._expr(k) for k in children(expr))
            return rebuild(expr, kids) if kids else expr
        if expr.buffer not in self.onto_rows and expr.buffer not in self.on_edges:
            return Load(self.locals.get(expr.buffer, expr.buffer), tuple(self._expr(e) for e in expr.indices))
        if expr.indices[:2] != (self.group, self.row):
            raise StageIError(
                f"bucket_rows: buffer {expr.buffer.name!r} is indexed by another row than the one being visited"
            )
        rest = tuple(self._expr(e) for e in expr.indices[2:])
        if expr.buffer in self.on_edges:
            return Load(self.on_edges[expr.buffer], (given(self.row), *rest))
        return Load(self.onto_rows[expr.buffer], (Load(self.rows, (given(self.row),)), *rest))


__all__ = ["bucket_rows"]
