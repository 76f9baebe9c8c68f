"""What is static in programs on the blocks of a mask."""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from .modifier import Modifier

SIDE = 32
"""Side of a tile."""


@dataclass(frozen=True)
class MaskedSpec:
    """Lengths, heads and sequences are arguments: a kernel serves every mask of its side and operands of its widths.

    block: side of a block. width: of queries and keys. value_width: of values.
    dtype: of operands and result; all is computed in its accumulation type.
    rows, vectors: a tile of sums has ``rows`` rows of ``vectors`` vectors of ``lanes``, which are registers.
    padding: keys are taken away sequence by sequence. dropout: weights are. tiles: products are those of tiles of
    bfloat16. modifier: what scores become before the softmax, None for themselves. queries: of
    all rows of a mask, where a vector holds them; 0 for those of a block. by_pairs: their products with keys take two
    features at a time, of bfloat16. shared_out: whether several items share the
    keys of a head, and leave parts of its result in the accumulation type.
    """

    block: int
    width: int
    value_width: int
    dtype: str = "float32"
    rows: int = 6
    vectors: int = 2
    lanes: int = 8
    padding: bool = False
    dropout: bool = False
    tiles: bool = False
    modifier: Modifier | None = None
    queries: int = 0
    by_pairs: bool = False
    shared_out: bool = False

    def __post_init__(self) -> None:
        if min(self.block, self.width, self.value_width, self.rows, self.vectors, self.lanes) < 1:
            raise StageIError(f"masked: a block, a width and a tile want one element at least, got {self}")
        if self.tiles and (self.dtype != "bfloat16" or self.block % SIDE):
            raise StageIError(f"masked: tiles are of bfloat16 and do not divide {self}")

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype]

    def padded(self, width: int) -> int:
        """``width`` filled up to whole vectors, or whole tiles."""
        whole = SIDE if self.tiles else self.lanes
        return -(-width // whole) * whole

    @property
    def in_features(self) -> bool:
        """Whether the lanes of products are features: of few queries, where features and keys are whole vectors."""
        whole = not any(length % self.lanes for length in (self.width, self.value_width, self.block))
        return self.queries > 0 and whole and not self.dropout

    @property
    def line(self) -> int:
        """Lanes of a key of a block: the side of the block, or its few queries, filled up to whole vectors; where lanes
        of products are features filled up to a part of a vector, which has several keys then.
        """
        if self.in_features:
            return next(n for n in range(self.queries, self.lanes + 1) if self.lanes % n == 0)
        return self.padded(self.queries or self.block)

    @property
    def fold(self) -> int:
        """Keys whose lanes one vector has."""
        return max(1, self.lanes // self.line)

    @property
    def groups(self) -> int:
        """Groups of lanes, each as wide as a tile of sums."""
        return -(-self.line // (self.vectors * self.lanes))
