"""What programs on the blocks of a mask begin with on a GPU: a team of lanes for each row, several rows a block.

A row is a query of one head of one sequence, or a key where the mask is the transpose. Its team has its features in
registers, shared out to the lanes, and goes through all columns of the row's blocks, one by one: what belongs to a pair
is computed by all lanes alike, and products of features are added up among them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, both, differ, maximum, minimum, number, select
from ....compiler.language.types import ACCUMULATOR
from ....frozen import dataclass
from .random import write_pair, write_word

SIZES = "num_items num_item_blocks num_blocks num_tiles lines block_rows mask_heads heads rows cols num_rows num_cols"


@dataclass(frozen=True)
class TeamSpec:
    """What is static.

    block, width, value_width, dtype, padding, dropout: as of a `MaskedSpec`. lanes: of a team. parts: neighbouring
    features that a lane loads together, of width and value_width, which they divide. teams: of a block.
    """

    block: int
    width: int
    value_width: int
    dtype: str = "float32"
    lanes: int = 32
    parts: tuple[int, int] = (1, 1)
    teams: int = 1
    padding: bool = False
    dropout: bool = False

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype]


@dataclass(frozen=True)
class Row:
    """number: of the rows of all heads and sequences, among which plane is the head of a sequence. row: of the mask.
    within: of its block. line, group: as of `items.Items`.
    """

    number: Expr
    row: Expr
    within: Expr
    plane: Expr
    batch: Expr
    line: Expr
    group: Expr


@dataclass(frozen=True)
class Pair:
    """number: of the columns of all heads and sequences. block: of the mask. column: of the mask, within: of its
    block.
    """

    number: Expr
    block: Expr
    column: Expr
    within: Expr


class Features:
    """An axis of features, shared out to the lanes of a team: of each turn a lane has some neighbours."""

    def __init__(self, p: ProgramBuilder, spec: TeamSpec, name: str, width: int, part: int) -> None:
        self.p, self.spec, self.name, self.width = p, spec, name, width
        turns = -(-width // (spec.lanes * part))
        self.turn, self.lane = p.role_axis(name, turns, "turn"), p.role_axis(name, spec.lanes, "lane")
        self.part, self.whole = p.role_axis(name, part, "part"), turns * spec.lanes * part == width
        self.axis = p.dense_fixed(name, width)

    def local(self, name: str) -> BufferHandle:
        """A number for each feature, in the registers of its lane."""
        return self.p.local(name, (self.lane, self.turn, self.part), self.spec.accumulator)

    def each(self, name: str, write: Callable[[tuple[Expr, ...], Expr], None], every: bool = False) -> None:
        """``write(place in a local buffer, feature)`` for all features. every: for places of no feature, too."""
        names = tuple(f"{v}_{name}" for v in "tlp")
        with self.p.iterate(name, (self.turn, self.lane, self.part), "SSS", names) as (t, l, e):
            first = (t * self.spec.lanes + l) * self.part.static_length
            if not (every or self.whole):
                self.p.where(first < self.width)
            write((l, t, e), first + e)

    def zeros(self, name: str) -> BufferHandle:
        found = self.local(name)
        self.each(f"no_{name.lower()}", lambda at, feature: found.__setitem__(at, 0.0), every=True)
        return found

    def dot(self, name: str, target: BufferHandle, own: BufferHandle, other: Callable[[Expr], Expr]) -> None:
        """target[()] = the sum over all features of own times other(feature)."""
        p, spec, lane, part = self.p, self.spec, self.lane, self.part
        Partial = p.local(f"Partial_{name}", (lane, part), spec.accumulator)
        Folded = p.local(f"Folded_{name}", (lane,), spec.accumulator)
        with p.iterate(f"{name}_zero", (lane, part), "SS", (f"{name}_lz", f"{name}_pz")) as (l, e):
            Partial[l, e] = 0.0
        names = tuple(f"{name}_{v}" for v in "tle")
        with p.iterate(f"{name}_main", (self.turn, lane, part), "RSS", names) as (t, l, e):
            first = (t * spec.lanes + l) * part.static_length
            if not self.whole:
                p.where(first < self.width)
            Partial[l, e] = Partial[l, e] + own[l, t, e] * other(first + e)
        with p.iterate(f"{name}_fold", (lane,), "S", (f"{name}_lf",)) as (l,):
            Folded[l] = functools.reduce(lambda a, b: a + b, [Partial[l, n] for n in range(part.static_length)])
        with p.iterate(name, (lane,), "R", (f"{name}_lr",)) as (l,):
            with p.init():
                target[()] = 0.0
            target[()] = target[()] + Folded[l]


class Teams:
    """A program over rows. Parameters: `SIZES`, block_ptr, First, Indices, Tile, Tiles[, Padding], and its own.

    Item p is a row of blocks of one head of one sequence, as of `items.Items`, with blocks from First[p % lines] on, as
    many as block_ptr says. Tiles are those of the mask, at least one. Padding is (batch, cols), or (batch, rows) where
    ``rows_padded``.
    """

    def __init__(self, name: str, spec: TeamSpec, rows_padded: bool = False) -> None:
        self.spec, self.rows_padded = spec, rows_padded
        self.p = p = ProgramBuilder(name)
        extent = dict(zip(SIZES.split(), p.sizes(*SIZES.split())))
        self.size = {name: as_expr(each) for name, each in extent.items()}
        self.P = p.dense_fixed("P", extent["num_items"])
        self.J = p.dense_variable("J", self.P, (extent["num_item_blocks"], extent["num_item_blocks"]), "block_ptr")
        self.Z = p.dense_fixed("Z", extent["num_blocks"])
        self.One, self.S = p.dense_fixed("One", 1), p.dense_fixed("S", spec.block)
        self.G = p.role_axis("I", -(-spec.block // spec.teams), "grid")
        self.W = p.role_axis("V", spec.teams, "warp")
        self.First = p.buffer("First", (p.dense_fixed("Lines", extent["lines"]),), "int32")
        self.Indices, self.Tile = p.buffer("Indices", (self.Z,), "int32"), p.buffer("Tile", (self.Z,), "int32")
        tiles = p.dense_fixed("N", extent["num_tiles"])
        self.Tiles = p.buffer("Tiles", (tiles, self.S, p.dense_fixed("SK", spec.block)), "uint8")
        if spec.padding:
            self.Padding = p.buffer("Padding", (p.dense_fixed("Padded", p.size("padded")),), "uint8")
        self.R, self.C = p.dense_fixed("R", extent["num_rows"]), p.dense_fixed("C", extent["num_cols"])
        self.K = Features(p, spec, "K", spec.width, spec.parts[0])
        self.E = Features(p, spec, "E", spec.value_width, spec.parts[1])

    def of_rows(self, name: str, features: Features | None, dtype: str | None = None) -> BufferHandle:
        """A parameter with features, or one number, for each row of all heads and sequences."""
        return self.p.buffer(name, (self.R, features.axis) if features else (self.R,), dtype or self.spec.dtype)

    def of_columns(self, name: str, features: Features | None, dtype: str | None = None) -> BufferHandle:
        """A parameter with features, or one number, for each column of all heads and sequences."""
        return self.p.buffer(name, (self.C, features.axis) if features else (self.C,), dtype or self.spec.dtype)

    def number(self, name: str, dtype: str | None = None) -> BufferHandle:
        """A local number."""
        return self.p.local(name, (), dtype or self.spec.accumulator)

    @contextmanager
    def rows(self) -> Iterator[Row]:
        """Teams that are too many for the rows of a block, or of the mask, do what the last one does."""
        size, block = self.size, self.spec.block
        with self.p.iterate("every_row", (self.P, self.G, self.W), "SSS", ("q", "g", "w")) as (q, g, w):
            group, line = q // size["lines"], q % size["lines"]
            first = line % size["block_rows"] * block
            plane = group * size["mask_heads"] + line // size["block_rows"]
            row = minimum(first + minimum(g * self.spec.teams + w, as_expr(block - 1)), size["rows"] - 1)
            # noted, as many places name them, and they take divisions
            Number, Within, Plane = (self.number(name, "int64") for name in ("Number", "Within", "Plane"))
            Plane[()] = plane
            Within[()] = row - first
            Number[()] = plane * size["rows"] + row
            at = Plane[()]
            yield Row(Number[()], first + Within[()], Within[()], at, at // size["heads"], line, group)

    @contextmanager
    def pairs(self, row: Row) -> Iterator[tuple[Pair, Callable[[], object]]]:
        """The pairs of a row's blocks, and what opens the loop of those that the mask has."""
        p, size = self.p, self.size
        with (
            p.iterate("blocks", (self.J,), "R", ("j",)) as (j,),
            p.iterate("columns", (self.S,), "R", ("jj",)) as (jj,),
        ):
            block = self.First[row.line] + j
            column = minimum(self.Indices[block] * self.spec.block + jj, size["cols"] - 1)
            Allow = self.number("Allow", "int32")
            tile = self.Tile[block]
            Allow[()] = select(tile < 0, number(1), self.Tiles[maximum(tile, 0), row.within, jj])

            @contextmanager
            def allowed() -> Iterator[None]:
                with p.iterate("allowed", (self.One,), "S"):
                    there = differ(Allow[()], number(0))
                    if self.spec.padding:
                        of = "rows" if self.rows_padded else "cols"
                        at = row.row if self.rows_padded else column
                        there = both(there, differ(self.Padding[row.batch * size[of] + at], number(0)))
                    p.where(there)
                    yield

            yield Pair(row.plane * size["cols"] + column, block, column, jj), allowed


class RandomStream:
    """`random.Random` for teams: adds the parameters Seed, Least and Factor."""

    def __init__(self, teams: Teams) -> None:
        self.teams, self.p = teams, teams.p
        self.Seed = self.p.buffer("Seed", (self.p.dense_fixed("Two", 2),), "int64")
        self.Least = self.p.buffer("Least", (teams.One,), "int64")
        self.Factor = self.p.buffer("Factor", (teams.One,), teams.spec.accumulator)

    def of_row(self, row: Row) -> None:
        """Note the word of a row: of a query, or of a key where the mask is the transpose."""
        self.keys, self.plane = self.teams.rows_padded, row.plane
        self.Own = self.teams.number("Own", "uint32")
        write_word(self.Own, (), self.plane, row.row, self.Seed, self.keys)

    def factor(self, pair: Pair) -> Expr:
        """What the weight of a pair is multiplied by, 0 or Factor."""
        Other, Both = self.teams.number("Other", "uint32"), self.teams.number("Both", "uint32")
        write_word(Other, (), self.plane, pair.column, self.Seed, not self.keys)
        write_pair(Both, (), self.Own[()], Other[()])
        kept = Both[()] >= self.Least[0]
        return select(kept, self.Factor[0], number(0.0, self.teams.spec.accumulator))
