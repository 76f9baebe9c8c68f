"""Functions that carry functions in LLVM's language, which TVM links into the module they are compiled to."""

from __future__ import annotations

from tvm import ir, tirx


def importing(function: tirx.PrimFunc, body: tirx.Stmt, text: str) -> tirx.PrimFunc:
    """The function with another body, which may call what the text defines."""
    body = tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", ir.StringImm(text), body)
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
