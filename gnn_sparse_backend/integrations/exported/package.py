"""``gsb.export``: a model to a package that keeps our operators, and a pack of the kernels that these run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.nn import Module

from ...tuning.pack import pack
from ..core.registry import enabled_frameworks
from ..core.substitutes.faces import FACES
from ..traced.walk import put_operators
from .aten import as_calls
from .load import PACK, package_path
from .making import making
from .operators import register
from .report import Export, Layer, layers_of

NAME = "torch.export"
"""What calls are counted under that belong to no framework."""


def export(
    model: Module,
    args: tuple[Any, ...],
    path: str | Path,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    aot: bool = False,
    targets: Sequence[str] | None = None,
) -> Export:
    """Write a model as a package that calls the operators of this package, and the kernels that they run beside it.

    The model is traced by ``torch.export``. Gathers, messages and reductions over edges in the program become the
    operators that ``gsb.compile`` puts into programs. These take index tensors, so that the package runs on any graph
    of the extents that it was exported for. Relational layers of PyG want ``gsb.enable("pyg")``. The program then runs
    on the example, forward, on one thread and on several, and the kernels that it uses are packed (``gsb.pack``).

    Args:
        model: a module, in the mode in which it is to run: call ``model.eval()`` before for inference.
        args: example of its positional arguments. Kernels are chosen by sizes, too: take a graph as large as those to
            come.
        path: of the package, ``NAME.pt2``. The kernels go into ``NAME.gsb`` in the same folder.
        kwargs: example of its arguments by name.
        dynamic_shapes: which extents may change, as ``torch.export.export`` takes it.
        aot: have AOTInductor compile the program, which takes a C++ compiler.
        targets: processors that the kernels are for, as ``gsb.pack`` takes them; by default this one.

    Returns:
        `Export`, which prints as a list: the operators that each layer calls, and why a layer calls none.

    Raises:
        TypeError: the model is no module, or the arguments are no tuple.
        ValueError: the name does not end in ``.pt2``, or there is nothing in the program for our operators.
        PackError: no kernel ran, or one for a GPU.
        RuntimeError: the program would hold for some of the extents alone. What ``torch.export`` cannot trace raises
            its own errors.
    """
    path = package_path("export", path)
    if not isinstance(model, Module):
        raise TypeError(f"export: the model must be a torch.nn.Module, got {type(model).__name__}; wrap it in one")
    if not isinstance(args, tuple):
        raise TypeError(f"export: args must be a tuple of the model's arguments, got {type(args).__name__}")
    register()
    with making():
        traced = _unlifted(torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False))
    done = Export(path, path.with_suffix(PACK), _put_operators(traced))
    if not done.operators:
        raise ValueError(f"export: nothing in this model is for our operators; use torch.export.save for it\n{done}")
    program = torch.export.export(traced, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    run = program.module()

    def work() -> None:
        with torch.no_grad():
            run(*args, **(kwargs or {}))

    pack(work, done.pack, targets)
    if aot:
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    else:
        torch.export.save(program, path)
    return done


def _unlifted(program: ExportedProgram) -> GraphModule:
    """A program as a module, without the checks of its inputs, which exporting it again puts there."""
    module = program.module()
    for node in module.graph.find_nodes(op="call_module", target="_guards_fn"):
        module.graph.erase_node(node)
    return module


def _put_operators(program: GraphModule) -> tuple[Layer, ...]:
    """Put our operators into a program, in place. Returns its layers."""
    framework = next((each for each in reversed(enabled_frameworks()) if each not in FACES), NAME)
    parts = [each for each in program.modules() if isinstance(each, GraphModule)]
    sizes = next((mode.shape_env for mode in map(_mode, parts) if mode is not None), None)
    known = len(getattr(sizes, "guards", ()))
    layers: list[Layer] = []
    for part in parts:
        as_calls(part.graph)
        put_operators(part.graph, framework)
        part.graph.lint()
        part.recompile()
        layers += layers_of(part.graph)
    if new := getattr(sizes, "guards", [])[known:]:
        raise RuntimeError(
            f"export: with operators the program would hold only where {[str(guard.expr) for guard in new]}; leave "
            "these extents out of dynamic_shapes"
        )
    return tuple(layers)


def _mode(program: GraphModule) -> Any:
    """The mode of the fake tensors that a program was traced with."""
    vals = (node.meta.get("val") for node in program.graph.nodes)
    return next((val.fake_mode for val in vals if hasattr(val, "fake_mode")), None)
