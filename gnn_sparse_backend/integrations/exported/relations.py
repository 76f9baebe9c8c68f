"""Relational products in packages: on an edge index and the relation of each edge, whose ``RelGraph`` is found at run
time.

    gsb::rgms_product_of_edges, rgms_basis_product_of_edges: as those on a ``RelGraph``

A framework's relational layer asks its edges how many are of each relation, which no program can be made of. While a
package is made (``making``), the layer is one such operator.
"""

from __future__ import annotations

from torch import Tensor

from ...ops.core.library import register_for
from ...ops.core.traced import Traced, as_indices
from ...ops.relational.operators import BASIS_PRODUCT, PRODUCT
from ...structures.checks import plain_tensor
from ...structures.relational.graph import RelGraph
from ..core.counters import ours
from ..core.graphs import GRAPHS


def _rel_graph(arguments: tuple, operands) -> RelGraph:
    """The graph of these arguments, which counts the call. Raises IndexError for ids out of range."""
    index, relation, num_sources, num_destinations, num_relations, framework = arguments
    index = plain_tensor(index)
    try:
        found = GRAPHS.find_relations(
            index[0], index[1], plain_tensor(relation), (num_destinations, num_sources), num_relations
        )
    except ValueError as error:
        raise IndexError(f"an edge index or a relation is out of range: {error}") from None
    if framework:
        ours(framework, "rgms")
    return found


RELATIONS = as_indices(
    (
        "Tensor index",
        "Tensor relation",
        "SymInt num_sources",
        "SymInt num_destinations",
        "SymInt num_relations",
        "str framework",
    ),
    _rel_graph,
    "_of_edges",
    "relations of a package are index tensors, no RelGraph",
    shapes=lambda arguments: (arguments[0][0], arguments[0][1], *arguments[1:5]),
)
"""index: (2, edges), sources and destinations. framework: what calls are counted for; "" counts none."""

for _operator in (PRODUCT, BASIS_PRODUCT):
    register_for(_operator, RELATIONS)


def relational_sums(
    index: Tensor,
    relation: Tensor,
    shape: tuple[int, int],
    num_relations: int,
    x: Tensor,
    weight: Tensor | tuple[Tensor, Tensor],
    mean: bool,
    framework: str,
) -> Tensor:
    """``gsb.rgms`` for a program of a package: (destinations, F_out), of x (sources, F_in).

    index: (2, edges), sources and destinations. shape: (destinations, sources). weight: matrices or blocks of the
    relations, (R, F_in, F_out) or (R, B, F_in / B, F_out / B), or (comp, bases).
    """
    structure = Traced((index, relation, shape[1], shape[0], num_relations, framework), kind=RELATIONS)
    if isinstance(weight, tuple):
        return BASIS_PRODUCT(structure, (x, *weight, None), (mean, False))
    blocks = weight if weight.dim() == 4 else weight.unsqueeze(1)
    return PRODUCT(structure, (x, blocks, None), (mean, False, ""))
