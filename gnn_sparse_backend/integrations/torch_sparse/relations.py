"""Graphs that are given by pointers and columns, as samplers take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...frozen import dataclass
from ...sampling.draws import Relation
from ..core.handles import Handles

_CHECKED = Handles()


@dataclass(frozen=True)
class Relations:
    """relations: of the edge types. sizes: nodes of each type. node_times: by type. timed: whether times count."""

    relations: list[Relation]
    sizes: dict[str, int]
    node_times: Mapping[str, Tensor]
    timed: bool

    def latest(
        self, seeds: Mapping[str, Tensor], seed_times: Mapping[str, Tensor] | None, disjoint: bool
    ) -> Tensor | None:
        """(seeds,) until when the neighbours of each seed may be drawn: given, or its own time; None without times.
        Raises ValueError where a seed has none, and for times in one tree of all seeds.
        """
        if not self.timed:
            return None
        if not disjoint:
            raise ValueError("a sample by times has a tree for each seed: it wants disjoint=True")
        given = self.node_times if seed_times is None else seed_times
        if missing := [kind for kind in seeds if kind not in given]:
            raise ValueError(f"Seed time needs to be specified: seeds{_of(missing[0])} have no time")
        times = [given[kind][nodes] if seed_times is None else given[kind] for kind, nodes in seeds.items()]
        return _whole(torch.cat(times))


def of_types(
    kinds: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    rowptr: Mapping[str, Tensor],
    col: Mapping[str, Tensor],
    node_times: Mapping[str, Tensor],
    edge_times: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    seeds: Mapping[str, Tensor],
    csc: bool,
) -> Relations:
    """Make relations of the rows of each edge type, which are its sources, or with ``csc`` its destinations.

    Dicts are by node type, or by the parts of an edge type joined by ``__``. Raises IndexError for columns and seeds
    that are out of range, and ValueError for floating-point times, and weights with times.
    """
    names = ["__".join(each) for each in edge_types]
    ends = [(each[2], each[0]) if csc else (each[0], each[2]) for each in edge_types]
    if (node_times or edge_times) and weights:
        raise ValueError("Biased temporal sampling not yet supported: give weights or times")
    sizes: dict[str, int] = dict.fromkeys(kinds, 0)
    for name, (row, _) in zip(names, ends):
        sizes[row] = max(sizes[row], rowptr[name].numel() - 1)
    of_rows = {row for row, _ in ends}
    for name, (_, other) in zip(names, ends):
        if other not in of_rows:
            sizes[other] = max(sizes[other], _largest(col[name]) + 1)
    for kind, nodes in seeds.items():
        if kind not in of_rows:
            sizes[kind] = max(sizes.get(kind, 0), _largest(nodes) + 1)
        if _least(nodes) < 0 or _largest(nodes) >= sizes[kind]:
            raise IndexError(f"seeds{_of(kind)} must be from 0 to {sizes[kind] - 1}, got {nodes}")
    relations = []
    for name, (row, other) in zip(names, ends):
        least, most = _CHECKED.once(col[name], "ends", lambda of=col[name]: (_least(of), _largest(of)))
        if least < 0 or most >= sizes[other]:
            raise IndexError(f"columns{_of(name)} must be from 0 to {sizes[other] - 1}, got {least} to {most}")
        times = edge_times.get(name, node_times.get(other))
        relations.append(
            Relation(
                other,
                row,
                _padded(rowptr[name], sizes[row]),
                col[name],
                sizes[other],
                _floating(weights.get(name)),
                None if times is None else _whole(times),
                name in edge_times,
            )
        )
    return Relations(relations, sizes, node_times, bool(node_times or edge_times))


def is_last(strategy: str) -> bool:
    """Whether the latest neighbours are drawn. Raises ValueError for a strategy that there is not."""
    if strategy not in ("uniform", "last"):
        raise ValueError(f"No valid temporal strategy found: it is 'uniform' or 'last', got {strategy!r}")
    return strategy == "last"


def _padded(rowptr: Tensor, rows: int) -> Tensor:
    """Pointers of that many rows, the last of which have no columns."""
    missing = rows + 1 - rowptr.numel()
    return torch.cat([rowptr, rowptr[-1:].expand(missing)]) if missing else rowptr


def _whole(times: Tensor) -> Tensor:
    if times.is_floating_point():
        raise ValueError(f"times must be integers, got {times.dtype}")
    return times.to(torch.int64).contiguous()


def _floating(weights: Tensor | None) -> Tensor | None:
    return weights if weights is None or weights.dtype in (torch.float32, torch.float64) else weights.double()


def _least(index: Tensor) -> int:
    return int(index.min()) if index.numel() else 0


def _largest(index: Tensor) -> int:
    return int(index.max()) if index.numel() else -1


def _of(kind: Any) -> str:
    return f" of {kind!r}" if kind.strip("_") else ""
