"""What every kernel of a graph has in common: how its rows are shared out, and its leading arguments."""

from __future__ import annotations

from torch import Tensor

from ...compiler.cache.bounded import kept
from ...formats.partitions.row_groups import cut_rows, equal_row_groups
from ...frozen import dataclass
from ...planner.plan import Plan
from ...runtime.layout import compact, kernel_ready
from ...structures.derived import Derived
from ...structures.facts import row_offsets, rows_looked_at

# A row costs its output and the loop around it beside its edges.
ROW_COST = 2.0


@dataclass(frozen=True, eq=False)
class RowGroups(Derived[tuple]):
    """(sizes, index arrays): the leading arguments of every kernel on a structure in ``groups`` row groups.

    balance: as in a plan; with teams each row is a group, whatever ``groups`` says. Compared by identity, for every
    call looks one up: made by `row_groups`.
    """

    groups: int
    balance: str

    def compute(self, structure) -> tuple:
        rows, cols = structure.shape
        groups = self.groups
        if self.balance == "nonzeros":
            group_ptr = cut_rows(row_offsets(structure), groups, ROW_COST, 1.0, lambda: rows_looked_at(structure))
        else:
            if self.balance == "teams":
                groups = max(rows, 1)
            group_ptr = equal_row_groups(structure.indptr, groups)
        return (groups, rows, cols, structure.num_edges), (group_ptr, structure.indptr, structure.indices)


row_groups = kept(RowGroups)


def structure_arguments(structure, groups: int, balance: str = "nonzeros") -> tuple:
    """`RowGroups` of a graph or a piece of one."""
    return structure.derived(row_groups(groups, balance))


def kernel_arguments(
    graph, groups: int, places, widths, operands, edge_ids: Tensor | None, balance: str = "nonzeros", of_rows=()
) -> list:
    """What every kernel over edges is called with: the structure in ``groups`` row groups, then the operands.

    of_rows: further arrays of the structure, such as the in-degrees of a mean.
    """
    return structured_arguments(
        *structure_arguments(graph, groups, balance), places, widths, operands, edge_ids, balance == "teams", of_rows
    )


def structured_arguments(
    sizes, arrays, places, widths, operands, edge_ids: Tensor | None, teams: bool, of_rows=()
) -> list:
    """The arguments of a kernel over edges, from a structure's sizes, the last its non-zeros, and its index arrays."""
    arguments = [*sizes]
    if edge_ids is not None:
        longest = sizes[-1]
        for x, place in zip(operands, places):
            if place == "edge":
                longest = x.shape[0]
        arguments.append(longest)
    arguments += arrays
    if edge_ids is not None:
        arguments.append(edge_ids)
    arguments += of_rows
    return arguments + operand_arguments(places, widths, operands, teams)


def edge_arguments(structure, plan: Plan, numbers: Tensor | None, edges: int) -> list:
    """The leading arguments of a kernel over arrays at the edges alone. numbers: of the edge at each position, where
    edges are in another order. edges: their number then.
    """
    sizes, arrays = structure_arguments(structure, plan.groups, plan.balance)
    return [*sizes, *arrays] if numbers is None else [*sizes, edges, *arrays, numbers]


def operand_arguments(places, widths, operands, teams: bool) -> list:
    """The operands as kernels take them: (rows, columns or edges, width), or (width,). teams: for kernels of teams,
    compact.
    """
    arguments = []
    for x, place, width in zip(operands, places, widths):
        if place == "number":
            continue
        x = compact(x) if teams else kernel_ready(x)
        if place == "all":
            x = x.reshape(width)
        elif x.dim() == 1:
            x = x.unsqueeze(1)  # which has a stride of 1 whatever that of the rows is
        elif x.dim() != 2:
            x = x.reshape(x.shape[0], width)
        # only row and column features may be strided
        arguments.append(x if place != "edge" or x.is_contiguous() else x.contiguous())
    return arguments
