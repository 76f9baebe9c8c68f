"""Sites and their kernel maps in programs that are traced: operators whose maps are found when the program runs.

How many sites there are then, nobody knows who traces: sizes of tensors are symbols that stand for it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ...structures.coordinates import kernel_map_between
from ...structures.coordinates.written import Written, read_window, sites_at
from ...structures.graph import Graph
from ...structures.kernel_map import GraphOf, KernelMap
from ..core.library import register_for
from ..core.operands import is_plain
from ..core.operator import Operator
from ..core.traced import StructureKind, Traced
from ..message.message_op import MessageText
from ..message.operators import AGGREGATE
from .operators import CONV, CONV_WEIGHT


@torch.inference_mode(False)  # what is found now is kept for a backward pass later
def _map(arguments: tuple, operands: Any = None) -> KernelMap:
    fine, coarse, batches, fine_how, coarse_how, window, _, _ = arguments
    of_fine, of_coarse = sites_at(fine, batches, fine_how), sites_at(coarse, batches, coarse_how)
    return kernel_map_between(of_fine, of_coarse, read_window(window, of_fine.dim))


def _refuse(structure: Any) -> Traced:
    raise TypeError("a traced program has kernel maps by the sites that they are between")


def _shapes(arguments: tuple) -> tuple:
    """What operators read of the arrays of a map."""
    dim, window = arguments[0].shape[1] - 1, arguments[5]
    offsets = read_window(window, dim).num_offsets
    return None, None, SimpleNamespace(shape=(offsets + 1,)), *arguments[6:]


MAP_OF_SITES = StructureKind(
    (
        "Tensor fine",
        "Tensor coarse",
        "SymInt batches",
        "int[] fine_how",
        "int[] coarse_how",
        "int[] window",
        "SymInt num_outputs",
        "SymInt num_inputs",
    ),
    _refuse,
    _map,
    hold=lambda arguments: _map(arguments) if is_plain(*arguments[:2]) else None,
    name="_of_sites",
    shapes=_shapes,
)
"""A kernel map by the sites that it is between, and its window: rows that each began as, and how they followed."""
for _operator in (CONV, CONV_WEIGHT):
    register_for(_operator, MAP_OF_SITES)


def _graph_shapes(arguments: tuple) -> tuple:
    """What operators read of the arrays of a graph."""
    *_, outputs, inputs = arguments
    return SimpleNamespace(shape=(outputs + 1,)), None, None, inputs


def _degrees(arguments: tuple, dtype: torch.dtype) -> Tensor:
    found: Tensor = DEGREES(Traced(arguments, kind=GRAPH_OF_SITES), (arguments[0],), (dtype,))
    return found


@torch.inference_mode(False)
def _graph(arguments: tuple, operands: Any) -> Graph:
    return _map(arguments).derived(GraphOf())


GRAPH_OF_SITES = StructureKind(
    MAP_OF_SITES.schema,
    _refuse,
    _graph,
    hold=MAP_OF_SITES.hold,
    name="_of_sites",
    shapes=_graph_shapes,
    lengths=_degrees,
)
"""The pairs of such a map as the edges of a graph."""
register_for(AGGREGATE, GRAPH_OF_SITES)
DEGREES = Operator(
    "degrees_of_sites",
    lambda graph, operands, attributes: graph.in_degrees.to(attributes[0], copy=True),
    structure=GRAPH_OF_SITES,
    operands="Tensor rows",
    attributes="ScalarType dtype",
    like=lambda arguments, operands, attributes, transposed: operands[0].new_empty(
        arguments[0].shape[0] - 1, dtype=attributes[0]
    ),
)
"""(outputs,) how many inputs each meets, in a type: attributes are (the type,)."""


def pooled(kernel_map: Traced, x: Tensor, reduce: str) -> Tensor:
    """The reduction of the inputs that each output of a map meets."""
    graph = Traced(kernel_map.arguments, kernel_map.transposed, GRAPH_OF_SITES)
    ties = "even" if reduce == "max" else None
    found: Tensor = AGGREGATE(graph, (x,), (MessageText("x0", ("column",), reduce, ties),))
    return found


def unknown_size(rows: Tensor) -> Any:
    """A number of rows that nobody knows before the program runs."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size  # which takes long, and who traces has

    environment = rows.fake_mode.shape_env  # type: ignore[attr-defined]
    size = environment.create_unbacked_symint()
    _constrain_range_for_size(size)
    return size


def _like_sites(arguments: tuple, operands: Any, attributes: Any, transposed: bool) -> Tensor:
    (rows,) = operands
    return rows.new_empty((unknown_size(rows), rows.shape[1]))


def _like_batches(arguments: tuple, operands: Any, attributes: Any, transposed: bool) -> Tensor:
    (rows,) = operands
    return rows.new_empty((unknown_size(rows), 0))


SITES = Operator(
    "voxel_sites",
    lambda nothing, operands, attributes: sites_at(operands[0], *attributes).rows.to(operands[0].dtype, copy=True),
    operands="Tensor rows",
    attributes="SymInt batches, int[] how",
    like=_like_sites,
)
"""(sites, 1 + D) the rows of sites that follow from others. Attributes: batches, how."""
BATCHES = Operator(
    "voxel_batches",
    lambda nothing, operands, attributes: operands[0].new_empty((_batches(operands[0]), 0)),
    operands="Tensor rows",
    like=_like_batches,
)
"""(batches, 0) as many rows as there are batches."""


def _batches(rows: Tensor) -> int:
    return int(rows[:, 0].max()) + 1 if rows.shape[0] else 0


def traced_sites(rows: Tensor, batches: Any, how: Written) -> Tensor:
    """The rows of the sites that follow from ``rows`` as it is written."""
    found: Tensor = SITES(Traced(()), (rows,), (batches, how))
    return found


def traced_batches(rows: Tensor) -> Any:
    """One more than the largest batch of rows."""
    return BATCHES(Traced(()), (rows,)).shape[0]
