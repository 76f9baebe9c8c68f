"""What is wrong with a dense operand, in words, and which of the two ways it takes to the kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ...runtime import memory
from ...runtime.devices import check_kernels
from ...runtime.machine import MEMORY
from ...structures.checks import FLOATING
from ...structures.graph import Graph

_PLAIN = (Tensor, Parameter)
_is_compiling, _modes = torch.compiler.is_compiling, torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_is_recording = torch._C._is_tracing  # by torch.jit.trace, which has tensors for sizes


def is_plain(*operands: Tensor | None, recorded: bool = False) -> bool:
    """Whether the operands can go straight to the eager path: ordinary tensors, with nothing tracing or transforming.

    Everything else (``torch.compile``, ``torch.jit.trace``, fake, meta and functional tensors, subclasses, function
    transforms) goes through the operators of ``torch.library``. recorded: ``torch.jit.trace`` may be at it, too.
    """
    for x in operands:
        if x is not None and (type(x) not in _PLAIN or x.is_meta):
            return False
    return (
        not _is_compiling()
        and not _modes()
        and not _transforms()
        and forward_ad._current_level < 0
        and (recorded or not _is_recording())
    )


def check_traced(
    operator: str, names: Sequence[str], operands: Sequence[Tensor | None], structure: torch.device
) -> None:
    """Refuse what the operators of ``torch.library`` would let through in silence: tensors on the meta device beside
    others, whose values nobody would find missing before the backward pass.

    structure: where the graph is. With all operands on the meta device it may be anywhere, for it gives the shapes.
    """
    given = [(name, x.device) for name, x in zip(names, operands) if x is not None]
    meta = [name for name, device in given if device.type == "meta"]
    others = [(name, device) for name, device in given if device.type != "meta"]
    if structure.type == "meta":
        meta.append("the structure")
    if meta and others:
        raise ValueError(
            f"{operator}: {meta[0]} is on the meta device and has no values, but {others[0][0]} is on {others[0][1]}; "
            "put all of them on one device"
        )


def check_graph(operator: str, graph) -> None:
    if not isinstance(graph, Graph):
        raise TypeError(
            f"{operator}: graph must be a gsb.Graph, got {type(graph).__name__}; make one with "
            "Graph.from_csr, from_coo, from_scipy, from_edge_index or from_dgl"
        )


def check_dense(operator: str, name: str, x) -> None:
    """``x`` is a dense floating tensor of a supported type."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{operator}: {name} must be a torch tensor, got {type(x).__name__}; wrap it in torch.as_tensor(...)"
        )
    if x.dtype not in FLOATING:
        raise TypeError(
            f"{operator}: {name} must be float32, float64, bfloat16 or float16, got {x.dtype}; {_as_floating(name, x)}"
        )
    if x.layout is not torch.strided:
        raise TypeError(f"{operator}: {name} must be a dense tensor, got layout {x.layout}; use {name}.to_dense()")


def _as_floating(name: str, x: Tensor) -> str:
    """How to make floating numbers of x without losing any."""
    if x.is_complex():
        return (
            f"give {name}.real and {name}.imag apart, or torch.view_as_real({name}), which has both in a last dimension"
        )
    if x.is_quantized:
        return f"convert it with {name}.dequantize()"
    return f"convert it with {name}.float()"


def check_features(operator: str, name: str, x) -> None:
    """``x`` is a dense floating tensor (n, F) or (n, H, D)."""
    check_dense(operator, name, x)
    dim = x.dim()
    if dim != 2 and dim != 3:
        hint = f"; use {name}.unsqueeze(1) for one feature" if dim == 1 else ""
        raise ValueError(f"{operator}: {name} must have shape (n, F) or (n, H, D), got {tuple(x.shape)}{hint}")


def check_rows(operator: str, name: str, x: Tensor, count: int, of_what: str, graph: Graph) -> None:
    """``x`` has one row for each of ``count`` nodes or edges, and is where the graph is."""
    if x.shape[0] != count:
        raise ValueError(
            f"{operator}: {name} must have {count} rows, one per {of_what} of the graph, got shape {tuple(x.shape)}"
        )
    check_device(operator, name, x, graph)


def check_device(operator: str, name: str, x: Tensor, graph: Graph) -> None:
    if x.device != graph.device:
        raise ValueError(
            f"{operator}: {name} is on {x.device} but the graph is on {graph.device}; "
            f"move one of them, for example graph.to({str(x.device)!r})"
        )


def check_fit(operator: str, structure: object, fits: bool, *operands: Tensor | None) -> None:
    """Raise ValueError, which has the operands that there are, unless they fit the structure and each other."""
    if not fits:
        found = ", ".join(f"{tuple(x.shape)} of {x.dtype}" for x in operands if x is not None)
        raise ValueError(f"{operator}: operands {found} do not go with {structure!r} and each other")


def check_written_out(operator: str, name: str, x: Tensor) -> None:
    """``x`` fits into memory (`memory.check_written_out`), in the words of an operator."""
    if x.nbytes > MEMORY:
        memory.check_written_out(f"{operator}: {name}", x)


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on where ``x`` is, of the devices that kernels are for; the meta device has none."""
    kind = x.device.type
    return kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind)


def common_type(operator: str, names: tuple[str, ...], *operands: Tensor) -> tuple[Tensor, ...]:
    """All operands in one type: under autocast the widest of theirs, otherwise they must agree already."""
    first = operands[0].dtype
    for name, x in zip(names, operands):
        if x.dtype is not first:
            if autocasts(x):
                wider = functools.reduce(torch.promote_types, [x.dtype for x in operands])
                return tuple(x.to(wider) for x in operands)
            raise TypeError(
                f"{operator}: {names[0]} is {first} but {name} is {x.dtype}; convert one of them, "
                f"for example {name}.to({first})"
            )
    return operands


def product_operands(
    operator: str, structure: str, device: torch.device, operands: Mapping[str, Tensor]
) -> list[Tensor]:
    """Check the operands of a product, given by name, and return them in one type (`one_type`).

    They are dense, where the structure is, and either in memory or, where a program is traced, all on the meta device
    or none.

    structure: what it is, in words. device: where it is.
    """
    for name, x in operands.items():
        check_dense(operator, name, x)
        if x.device != device and not x.is_meta:
            raise ValueError(
                f"{operator}: {name} is on {x.device} but the {structure} is on {device}; move one of them"
            )
    check_kernels(operator, device)
    if is_plain(*operands.values()):
        for name, x in operands.items():
            check_written_out(operator, name, x)
    else:
        check_traced(operator, list(operands), list(operands.values()), device)
    return one_type(operator, operands)


def one_type(operator: str, operands: Mapping[str, Tensor]) -> list[Tensor]:
    """Operands of a product in one type, that of autocast where it is on, as PyTorch casts those of its products."""
    found = list(operands.values())
    dtypes = {x.dtype for x in found}
    if autocasts(found[0]) and torch.float64 not in dtypes:
        dtype = torch.get_autocast_dtype(found[0].device.type)
        return [x.to(dtype) for x in found]
    if len(dtypes) > 1:
        raise TypeError(
            f"{operator}: operands must be of one type, got "
            + ", ".join(f"{name} of {x.dtype}" for name, x in operands.items())
            + f"; convert them, for example with .to({found[0].dtype})"
        )
    return found
