"""Calls of elementary functions in a stage III function, replaced by what a CPU computes in vectors (`formulas`).

TVM turns exp, log and tanh into one call of the C library per element (2 ns and more), sigmoid into one of exp, and tanh into
a formula that gives 0 where the argument is small. Applied to every CPU build; CUDA has these functions itself.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from . import formulas

_FORMULAS = {
    "tirx.exp": formulas.exp,
    "tirx.log": formulas.log,
    "tirx.tanh": formulas.tanh,
    "tirx.sigmoid": formulas.sigmoid,
    "tirx.isnan": formulas.is_nan,
}
_NARROW = ("float16", "bfloat16")


def expand_functions(module: tvm.IRModule) -> tvm.IRModule:
    """The module with exp, log, tanh, sigmoid and isnan written out, in float32 for narrower types.

        y[k] = T.exp(x[k])   ->   y[k] = T.Let(... T.Let(scaled * T.reinterpret("float32", ...), where={...}) ...)
    """
    functions = {}
    for variable, function in module.functions.items():
        body = tvm_ffi.structural_mutate(function.body, [(tvm.ir.Call, _expand)])
        functions[variable] = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    return tvm.IRModule(functions)


def _expand(call, mutator):
    call = mutator.default_mutate(call)
    formula = _FORMULAS.get(getattr(call.op, "name", None))
    if formula is None:
        return call
    argument, dtype = call.args[0], str(call.args[0].ty.dtype)
    if dtype in _NARROW:
        steps = formulas.Steps("float32")
        result = steps.end(formula(steps, argument.astype("float32")))
        return result if str(result.ty.dtype) == "bool" else result.astype(dtype)
    if dtype not in ("float32", "float64"):
        return call
    steps = formulas.Steps(dtype)
    return steps.end(formula(steps, argument))
