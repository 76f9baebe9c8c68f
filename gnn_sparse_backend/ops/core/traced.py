"""Structures among the arguments of ``torch.library``'s operators: as their tensors, which a compiled program can save,
keep alive and give back in the backward pass even after the user's object is gone.

At run time the live object that owns these arrays is found again, with all that it has derived; if there is none, one
is built from the arrays after the same checks as a user's. The transpose is thus computed inside an operator and never
traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...frozen import dataclass
from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ...structures.immutable import Structure
from .operands import is_plain


class Traced:
    """What stands for a structure where a program is traced: the arguments of the schema, and whether it is the
    transpose that is meant.

    kind: how it enters ``torch.library``, where that is not as the operator says.
    """

    def __init__(self, arguments: tuple[Any, ...], transposed: bool = False, kind: StructureKind | None = None):
        self.arguments, self.transposed, self.kind = arguments, transposed, kind

    @property
    def name(self) -> str:
        """`StructureKind.name`."""
        return "" if self.kind is None else self.kind.name

    def transpose(self) -> Traced:
        """What stands for the structure with every edge reversed."""
        return Traced(self.arguments, not self.transposed, self.kind)


def _lengths(arguments: tuple, dtype: torch.dtype) -> Tensor:
    return arguments[0].diff().to(dtype)


@dataclass(frozen=True, eq=False)
class StructureKind:
    """How structures of a kind enter ``torch.library``.

    schema: their arguments. traced: the structure to what stands for it. live: these arguments and the operands to the
    structure. last: whether they come after the operands. hold: arguments to what should live until the backward pass.
    sizes: arguments and operands to what stands for the structure in the backward pass. name: after that of the
    operator, where it enters in more than one way. shapes: arguments to such of the shapes that the first way has.
    """

    schema: tuple[str, ...]
    traced: Callable[[Any], Traced]
    live: Callable[[tuple, Any], Any]
    last: bool = False
    hold: Callable[[tuple], Any] = lambda arguments: None
    sizes: Callable[[tuple, Any], tuple] = lambda arguments, operands: arguments
    name: str = ""
    shapes: Callable[[tuple], tuple] = lambda arguments: arguments
    lengths: Callable[[tuple, torch.dtype], Tensor] = _lengths


def traced_graph(graph: Graph) -> Traced:
    """What stands for a graph."""
    return Traced((graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]))


def _graph(arguments: tuple, operands) -> Graph:
    return Graph._of_arrays(*arguments)


def owned(
    schema: tuple[str, ...], traced: Callable[[Any], Traced], of: type[Structure], make: Callable[..., Structure]
) -> StructureKind:
    """How structures enter that are found again by these arguments, or made of them, which is checked. In eager mode
    one lives until the backward pass, with what it has derived.
    """

    def live(arguments: tuple, operands: Any) -> Structure:
        plain = [plain_tensor(a) if isinstance(a, Tensor) else a for a in arguments]
        found = of._find_live(*plain)
        return make(*plain) if found is None else found

    def hold(arguments: tuple) -> Structure | None:
        arrays = [a for a in arguments if isinstance(a, Tensor)]
        return of._find_live(*arguments) if is_plain(*arrays) else None

    return StructureKind(schema, traced, live, hold=hold)


def as_indices(
    schema: tuple[str, ...], live: Callable[[tuple, Any], Any], name: str, instead: str, **more: Any
) -> StructureKind:
    """How structures enter that a program has as index tensors alone. schema: ends with what calls are counted under.
    instead: what a program has, in words, of which TypeError is raised where a structure is given.
    """

    def traced(structure: Any) -> Traced:
        raise TypeError(instead)

    # calls are counted once, in the forward pass
    return StructureKind(
        schema, traced, live, sizes=lambda arguments, operands: (*arguments[:-1], ""), name=name, **more
    )


_CSR = ("Tensor indptr", "Tensor indices", "Tensor? edge_ids")
NO_STRUCTURE = StructureKind((), lambda structure: Traced(()), lambda arguments, operands: None)
GRAPH = StructureKind((*_CSR, "SymInt num_sources"), traced_graph, _graph)
GRAPH_OF_BOTH_ENDS = StructureKind(
    _CSR,
    traced_graph,
    lambda arguments, operands: Graph._of_arrays(*arguments, operands[1].shape[0]),
    sizes=lambda arguments, operands: (*arguments, operands[1].shape[0]),
)
"""A graph whose number of sources is that of the rows of the second operand."""


def inverse_lengths(structure: Traced, dtype: torch.dtype) -> Tensor:
    """(rows,) 1 / max(number of edges into each row, 1) of a graph that is not transposed."""
    lengths = _lengths if structure.kind is None else structure.kind.lengths
    return lengths(structure.arguments, dtype).clamp(min=1).reciprocal()
