"""The formats as rules of `decompose_format`, and the copies between them. Beside each stands its module in
`formats/`.
"""

from __future__ import annotations

from ..language.axes import Size, dense_fixed, sparse_fixed, sparse_variable
from ..language.builder import ProgramBuilder
from ..language.program import Program
from .decompose import FormatRewriteRule


def bsr_rule(
    program: Program,
    block: int,
    *,
    name: str = "bsr",
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] = ("A",),
    index_dtype: str = "int32",
) -> FormatRewriteRule:
    """Square blocks. Parameters added: mb_, nb_, nnzb_, and indptr and indices of the blocks, each with the suffix
    `name`.
    """
    mb, nb, nnzb = (Size(f"{s}_{name}") for s in ("mb", "nb", "nnzb"))
    IO = dense_fixed(f"IO_{name}", mb)
    JO = sparse_variable(f"JO_{name}", IO, (nb, nnzb), (f"indptr_{name}", f"indices_{name}"), index_dtype)
    II = dense_fixed(f"II_{name}", block)
    JI = dense_fixed(f"JI_{name}", block)
    after = tuple(a.name for a in (IO, JO, II, JI))
    return FormatRewriteRule(
        name,
        (mb, nb, nnzb),
        (IO, JO, II, JI),
        buffers,
        (rows, columns),
        after,
        {rows: (IO.name, II.name), columns: (JO.name, JI.name)},
        lambda i, j: (i // block, j // block, i % block, j % block),
        lambda io, jo, ii, ji: (io * block + ii, jo * block + ji),
        masked=True,
    )


def ell_rule(
    program: Program,
    width: int,
    *,
    name: str = "ell",
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] = ("A",),
    index_dtype: str = "int32",
) -> FormatRewriteRule:
    """`width` slots for each row, unused ones with coordinate -1. Parameters added: m_ and indices_ with the suffix."""
    m = Size(f"m_{name}")
    I = dense_fixed(f"I_{name}", m)
    J = sparse_fixed(
        f"J_{name}", I, (program.axis(columns).length, width), f"indices_{name}", index_dtype, sorted=False, padded=True
    )
    return FormatRewriteRule(
        name,
        (m,),
        (I, J),
        buffers,
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
    tasks: str = "T",
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] = ("A",),
    index_dtype: str = "int32",
) -> FormatRewriteRule:
    """One bucket of hyb(c, k): a list of rows, `width` slots for each; a long row occurs several times.

    For a program whose rows are grouped into tasks (`group_axis`): the rows of a bucket are shared out by the same
    cuts, so no two tasks ever write one row. Parameters added, with the suffix: count_ (rows in the bucket), ptr_
    (first bucket row of each task), rows_ (row within its task), indices_.
    """
    count = Size(f"count_{name}")
    m, n = program.axis(rows).length, program.axis(columns).length
    T = program.axis(tasks)
    I = sparse_variable(f"I_{name}", T, (m, count), (f"ptr_{name}", f"rows_{name}"), index_dtype, unique=False)
    J = sparse_fixed(f"J_{name}", I, (n, width), f"indices_{name}", index_dtype, sorted=False, padded=True)
    return FormatRewriteRule(
        name,
        (count,),
        (I, J),
        buffers,
        (tasks, rows, columns),
        (tasks, I.name, J.name),
        {tasks: (tasks,), rows: (I.name,), columns: (J.name,)},
        lambda t, i, j: (t, i, j),
        lambda t, i, j: (t, i, j),
    )


def csr_to_bsr(block: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Fill the blocks of a BSR matrix from CSR; what is not stored is zero."""
    p = ProgramBuilder("csr_to_bsr")
    m, n, nnz, mb, nb, nnzb = p.sizes("m", "n", "nnz", "mb", "nb", "nnzb")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    IO = p.dense_fixed("IO", mb)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("JO_indptr", "JO_indices"), index_dtype)
    II = p.dense_fixed("II", block)
    JI = p.dense_fixed("JI", block)
    A = p.buffer("A", (I, J), dtype)
    B = p.buffer("B", (IO, JO, II, JI), dtype)
    with p.iterate("copy", (IO, JO, II, JI), "SSSS") as (io, jo, ii, ji):
        B[io, jo, ii, ji] = A[io * block + ii, jo * block + ji]
    return p.finish()
