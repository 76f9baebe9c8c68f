"""Calls of elementary functions in a function for the CPU, made calls of the vector functions of `formulas`.

TVM itself makes exp, log and tanh one call of the C library per element (2 ns and more), sigmoid one of exp, and tanh
a formula that gives 0 where the argument is small. CUDA has these functions, and keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import tvm_ffi

from ....deferred import tirx, tvm
from ..nodes import importing
from .formulas import FUNCTIONS, TYPES, llvm_function
from .instructions import amx, dot_tiles, exp2, mmla, pair_dot, pairs, transpose

_MODULES = (amx, dot_tiles, mmla, pairs, transpose)
"""Functions that are called by names with a prefix, on processors with some of these features."""


def call_vector_functions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A lowered function in which exp, log, tanh and sigmoid are calls of functions whose text it carries; it carries
    that of the functions of `bf16_pair_dot`, `amx_tiles`, `memory_tiles` and `pairs` as well.

        y[T.ramp(0, 1, 64)] = T.exp(x[T.ramp(0, 1, 64)])
        ->  y[T.ramp(0, 1, 64)] = T.call_pure_extern("float32x64", "gsb_exp_float32x64", x[T.ramp(0, 1, 64)])
    """
    texts: dict[str, str] = {}
    instructions: dict[ModuleType, set[str]] = {module: set() for module in _MODULES}
    features = _features(function)
    sve = sve_of(function)

    def visit(call: tvm.ir.Call, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        call = mutator.default_mutate(call)
        name = getattr(call.op, "name", "").rpartition(".")[2]
        if name == "call_pure_extern":
            lanes = pair_dot.lanes_of(str(call.args[0].value))
            if lanes is not None:
                texts[pair_dot.function_name(lanes)] = pair_dot.llvm_text(lanes, features(), sve)
        elif name == "call_extern":
            named = str(call.args[0].value)
            for module, names in instructions.items():
                if named.startswith(module.PREFIX):
                    if not any(features().issuperset(needed) for needed in module.FEATURES):
                        wanted = ", or ".join(" and ".join(needed) for needed in module.FEATURES)
                        raise TypeError(f"{named} is for processors with {wanted}")
                    names.add(named)
        elif name == "exp2":
            return _brief(call, texts, features())
        return _call(name, call.args[0], texts) if name in FUNCTIONS else call

    body = tvm_ffi.structural_mutate(function.body, [(tvm.ir.Call, visit)])
    texts |= {module.PREFIX: module.llvm_text(names, features()) for module, names in instructions.items() if names}
    if not texts:
        return function
    return importing(function, body, "\n".join(texts.values()))


def _features(function: tirx.PrimFunc) -> Callable[[], frozenset[str]]:
    """What gives, in LLVM's spelling, the features of the CPU that the function is compiled for."""

    @functools.cache
    def features() -> frozenset[str]:
        return frozenset(map(str, tvm.get_global_func("target.llvm_get_cpu_features")(function.attrs["target"])))

    return features


def sve_of(function: tirx.PrimFunc) -> int:
    """Bytes of a scalable vector that the function is compiled for, 0 without such: `Target.host` tells TVM."""
    return int(function.attrs["target"].attrs.get("vector-width", 0)) // 8


def _brief(call: tvm.ir.Call, texts: dict[str, str], features: frozenset[str]) -> tirx.Expr:
    """A call of `brief_exponentials`, the only one that makes exp2."""
    dtype = str(call.ty.dtype)
    lanes = int(dtype.partition("x")[2] or 1)
    name = exp2.function_name(lanes)
    texts[name] = exp2.llvm_text(lanes, features)
    return tirx.call_pure_extern(dtype, name, call.args[0])


def _call(function: str, argument: tirx.Expr, texts: dict[str, str]) -> tirx.Expr:
    dtype = str(argument.ty.dtype)
    kind, _, lanes = dtype.partition("x")  # of "float32x8", or "float32"
    if kind == "float16":
        wide = argument.astype(dtype.replace("float16", "float32"))
        return _call(function, wide, texts).astype(dtype)
    if kind not in TYPES:
        raise TypeError(f"{function} of {dtype} has no code for the CPU; convert the argument to {' or '.join(TYPES)}")
    name, text = llvm_function(function, kind, int(lanes or 1))
    texts[name] = text
    return tirx.call_pure_extern(dtype, name, argument)
