"""``Permutation``: another order of nodes, to be applied to what belongs to them."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from ...formats.counts import at_places
from ...frozen import dataclass
from ..checks import check_integers, check_range, plain_tensor


@dataclass(frozen=True, eq=False)
class Permutation:
    """Another order of n nodes. Every method is differentiable in what it permutes.

    Attributes:
        order: (n,) int64, the node that stands at each place; its number is the one from before.
    """

    order: Tensor

    @cached_property
    def places(self) -> Tensor:
        """(n,) int64: the place of each node, the inverse of ``order``."""
        return at_places(self.order)

    def apply(self, x: Tensor, dim: int = 0) -> Tensor:
        """What belongs to the nodes (features, labels, masks) in the new order. ``x`` has n entries along ``dim``."""
        return self._checked(x, dim).index_select(dim, self.order)

    def undo(self, x: Tensor, dim: int = 0) -> Tensor:
        """The inverse of ``apply``: results in the order from before."""
        return self._checked(x, dim).index_select(dim, self.places)

    def renumber(self, nodes: Tensor) -> Tensor:
        """The new numbers of nodes (training nodes, ends of edges): integers of any shape, which keep shape and type.

        Raises TypeError or ValueError that quotes what is not the number of a node.
        """
        check_integers("nodes", nodes)
        plain = plain_tensor(nodes)
        check_range("nodes", plain.flatten(), len(self.order), "nodes")
        return self.places.to(plain.dtype)[plain.long()]

    def _checked(self, x: Tensor, dim: int) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected a torch tensor, got {type(x).__name__}; wrap it in torch.as_tensor(...)")
        if not -x.dim() <= dim < x.dim() or x.shape[dim] != len(self.order):
            raise ValueError(f"expected {len(self.order)} entries along dimension {dim}, got shape {tuple(x.shape)}")
        return x

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"Permutation({len(self.order)} nodes, {self.order.device})"
