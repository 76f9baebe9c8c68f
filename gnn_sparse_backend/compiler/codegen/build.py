"""From a stage III function to machine code: the only place that knows how TVM is called to build."""

from __future__ import annotations

import os
from pathlib import Path

from ... import system
from ...deferred import s_tir, tirx, tvm
from .cpu import threads
from .cpu.checks import provide_checks
from .cpu.launcher import slot_function
from .cpu.pipeline import cpu_pipeline
from .cuda.machine_code import cuda_source, cuda_target, own_compile_callback
from .cuda.scalarise_select import choose_apart
from .errors import BuildError
from .ieee import keep_ieee
from .linker import link, linker_for
from .loaded import LoadedModule
from .nodes import nodes
from .opened import object_of
from .target import Target


def build_jit(function: tirx.PrimFunc | tvm.IRModule, target: Target) -> LoadedModule:
    """Compile into this process's memory, with its parallel loops on the shared threads.

    Raises BuildError, which names the function and keeps its text.
    """
    module = as_module(function)
    provide_checks()
    made = compiled(module, target)
    threads.share(made)
    return LoadedModule(function_names(module), made)


def build_shared(function: tirx.PrimFunc | tvm.IRModule, target: Target, out_dir: str | os.PathLike[str]) -> Path:
    """Compile into a file that `load` accepts, and return its path.

    A shared object ``<name>.so``, linked by ``ld`` or, failing that, by ``gcc`` or ``cc``; on a machine without any of
    them LLVM text, ``<name>.ll``, which takes longer to load (about 50 ms). ``name`` is that of the first function.
    Raises BuildError, and ValueError for a cuda target, whose result is the text of `generate_cuda` or the machine code
    of `compile_cuda`.
    """
    if target.is_cuda:
        raise ValueError(f"build_shared makes CPU files, got target {target}; use generate_cuda and compile_cuda")
    module = as_module(function)
    names = function_names(module)
    made = compiled(module, target)
    out_dir = Path(out_dir)
    if linker_for(target) is None and target.machine == system.machine():
        path = out_dir / f"{names[0]}.ll"
        path.write_text(made.inspect_source("ll"))
        return path
    path = out_dir / f"{names[0]}.so"
    with object_of(made) as (object_file, inherited):
        link(names[0], [object_file], path, target, module.script, inherited)
    return path


def generate_assembly(function: tirx.PrimFunc | tvm.IRModule, target: Target) -> str:
    """Assembly of functions for a CPU, as text: what `build_jit` and `build_shared` make of them.

    Raises BuildError, and ValueError for a cuda target, whose text is that of `generate_cuda`.
    """
    if target.is_cuda:
        raise ValueError(f"generate_assembly is for CPUs, got target {target}; use generate_cuda")
    return str(compiled(as_module(function), target).inspect_source("s"))


def generate_cuda(function: tirx.PrimFunc | tvm.IRModule, arch: str) -> str:
    """CUDA source of functions scheduled with thread bindings, for `compile_cuda`. Needs no GPU. Raises BuildError."""
    return cuda_source(compiled(as_module(function), cuda_target(arch)))


def as_module(function: tirx.PrimFunc | tvm.IRModule) -> tvm.IRModule:
    """An IRModule of one function, or the module itself. Functions without a global symbol take the name "main"."""
    if isinstance(function, tvm.IRModule):
        return function
    name = str(function.attrs["global_symbol"]) if function.attrs and "global_symbol" in function.attrs else "main"
    return tvm.IRModule({name: function.with_attr("global_symbol", name)})


def function_names(module: tvm.IRModule) -> tuple[str, ...]:
    """Names of the functions of a module, sorted."""
    return tuple(sorted(variable.name_hint for variable in module.functions))


def _refuse_unknown_sizes(module: tvm.IRModule) -> None:
    """Raise BuildError for a buffer in a loop that has a size at run time alone: the host allocates what is around all
    loops, and a GPU nothing.
    """
    for name, function in module.functions.items():
        for block in nodes(function.body, s_tir.SBlock):
            for buffer in block.alloc_buffers if block.name_hint != "root" else ():
                if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
                    raise BuildError(
                        str(name.name_hint),
                        f"its local buffer {buffer.name!r} of shape {tuple(map(str, buffer.shape))} has a size that is "
                        "known at run time alone, and a kernel for CUDA allocates no memory; give a fixed length, or "
                        "make the buffer a parameter",
                        module.script(),
                    )


LEFT_OUT = ["s_tir.CompactBufferAllocation", "s_tir.HoistIfThenElse", "tirx.RemoveNoOp"]
"""Passes of TVM's that change nothing in a program for the CPU, whose local buffers have their size, and take longer
than all others: time that doubles with each loop around a buffer.
"""

MOST_BOUND = 100
"""Variables of a module from which on TVM's search for common subexpressions is left out, too: of the hundreds of a
random number generator it takes 3.3 s of 5.1, and LLVM finds the same.
"""


def _without_slow_passes(module: tvm.IRModule) -> tvm.transform.PassContext:
    bound = sum(1 for function in module.functions.values() for _ in nodes(function.body, tirx.Bind))
    return tvm.transform.PassContext(
        disabled_pass=LEFT_OUT if bound <= MOST_BOUND else [*LEFT_OUT, "tirx.CommonSubexprElim"]
    )


def compiled(module: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """TVM's module of the functions, none of them in this process's memory yet. Raises BuildError."""
    complete = keep_ieee(module, target.is_cuda)
    if target.is_cuda:
        _refuse_unknown_sizes(module)
        complete = choose_apart(complete)
    loops = [loop for function in module.functions.values() for loop in nodes(function.body, tirx.For)]
    if any(loop.kind == tirx.ForKind.PARALLEL for loop in loops):
        name, function = slot_function()
        complete = tvm.IRModule(
            {**{str(variable.name_hint): body for variable, body in complete.functions.items()}, name: function}
        )
    try:
        with own_compile_callback(target.arch) if target.is_cuda else _without_slow_passes(module):
            # not tvm.compile, which asks its language for whole models whether there is anything of that
            return tirx.build(complete, target.to_tvm(), "default" if target.is_cuda else cpu_pipeline())
    except BuildError:
        raise
    except Exception as error:  # TVM's passes raise every kind of exception; none of them names the kernel
        raise BuildError(
            ", ".join(function_names(module)), f"{type(error).__name__}: {error}", module.script()
        ) from error
