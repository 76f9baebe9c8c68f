"""The formats of single non-zeros as rules of `decompose_format`. Beside each stands its module in `formats/`; those of
blocks are in `block_rules`.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.axes import Axis, Size, dense_fixed, sparse_fixed, sparse_variable
from ..language.program import Buffer, Program, stores_in
from .rewrite_rule import FormatRewriteRule


def csr_rule(
    program: Program, *, name: str, columns: str = "J", buffers: tuple[str, ...] | None = None
) -> FormatRewriteRule:
    """Some of the non-zeros, in rows as before: a column partition. Parameters added: nnz_, indptr_, indices_."""
    old = program.axis(columns)
    *rows, _ = (a.name for a in old.chain)
    nnz = Size(f"nnz_{name}")
    J = replace(old, name=f"{columns}_{name}", nnz=nnz, indptr=f"indptr_{name}", indices=f"indices_{name}")
    return FormatRewriteRule(
        name,
        (nnz,),
        (J,),
        standing_on(program, buffers, *rows, columns),
        (*rows, columns),
        (*rows, J.name),
        {**{row: (row,) for row in rows}, columns: (J.name,)},
        lambda *at: at,
        lambda *at: at,
        whole=True,
    )


def ell_rule(
    program: Program,
    width: int,
    *,
    name: str = "ell",
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    index_dtype: str | None = None,
    own_rows: bool = True,
) -> FormatRewriteRule:
    """`width` slots for each row, unused ones with coordinate -1. Parameters added: m_ and indices_ with the suffix.

    own_rows=False: the rows are those of the program, and may be grouped into tasks; parameter added: indices_.
    """
    if not own_rows:
        old = program.axis(columns)
        *above, I = old.chain[:-1]
        J = _slots(program, I, width, name, columns, index_dtype)
        at = tuple(a.name for a in (*above, I))
        return FormatRewriteRule(
            name,
            (),
            (J,),
            standing_on(program, buffers, *at, columns),
            (*at, columns),
            (*at, J.name),
            {**{a: (a,) for a in at}, columns: (J.name,)},
            lambda *at: at,
            lambda *at: at,
            whole=True,
        )
    m = Size(f"m_{name}")
    I = dense_fixed(f"I_{name}", m)
    J = _slots(program, I, width, name, columns, index_dtype)
    return FormatRewriteRule(
        name,
        (m,),
        (I, J),
        standing_on(program, buffers, rows, columns),
        (rows, columns),
        (I.name, J.name),
        {rows: (I.name,), columns: (J.name,)},
        lambda i, j: (i, j),
        lambda i, j: (i, j),
    )


def hyb_bucket_rule(
    program: Program,
    width: int,
    *,
    name: str,
    tasks: str | None = "T",
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    index_dtype: str | None = None,
) -> FormatRewriteRule:
    """One bucket of hyb(c, k): a list of rows, `width` slots for each; a long row occurs several times.

    For a program whose rows are grouped into tasks (`group_axis`): the rows of a bucket are shared out by the same
    cuts, so no two tasks ever write one row. Parameters added, with the suffix: count_ (rows in the bucket), ptr_
    (first bucket row of each task), listed_ (row within its task), indices_.

    Without tasks the rows of a bucket are one list. Parameters added: count_, indices_, Rows_ (the row of each).
    """
    count = Size(f"count_{name}")
    index_dtype = index_dtype or program.axis(columns).index_dtype
    if tasks is None:
        I = dense_fixed(f"I_{name}", count)
        Rows = Buffer(f"Rows_{name}", (I,), index_dtype)
        J = _slots(program, I, width, name, columns, index_dtype)
        return FormatRewriteRule(
            name,
            (count,),
            (I, J),
            standing_on(program, buffers, rows, columns),
            (rows, columns),
            (I.name, J.name),
            {rows: (I.name,), columns: (J.name,)},
            None,
            lambda i, j: (Rows[i], j),
            (Rows,),
        )
    extent = program.axis(rows).length, count
    arrays = f"ptr_{name}", f"listed_{name}"
    I = sparse_variable(f"I_{name}", program.axis(tasks), extent, arrays, index_dtype, unique=False)
    J = _slots(program, I, width, name, columns, index_dtype)
    return FormatRewriteRule(
        name,
        (count,),
        (I, J),
        standing_on(program, buffers, tasks, rows, columns),
        (tasks, rows, columns),
        (tasks, I.name, J.name),
        {tasks: (tasks,), rows: (I.name,), columns: (J.name,)},
        lambda t, i, j: (t, i, j),
        lambda t, i, j: (t, i, j),
    )


def standing_on(program: Program, buffers: tuple[str, ...] | None, *axes: str) -> tuple[str, ...]:
    """``buffers``, or the names of all parameters that begin with these axes and are not stored to."""
    if buffers is not None:
        return buffers
    first = tuple(program.axis(name) for name in axes)
    stored = {store.buffer for store in stores_in(program.iterations)}
    return tuple(b.name for b in program.parameters if b.axes[: len(first)] == first and b not in stored)


def _slots(program: Program, I: Axis, width: int, name: str, columns: str, index_dtype: str | None) -> Axis:
    """The columns of a row in `width` slots, in any order."""
    of = program.axis(columns)
    return sparse_fixed(
        f"J_{name}",
        I,
        (of.length, width),
        f"indices_{name}",
        index_dtype or of.index_dtype,
        sorted=False,
        unique=of.unique,
        padded=True,
    )
