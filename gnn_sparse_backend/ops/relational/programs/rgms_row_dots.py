"""Dots of relational products at the edges on a GPU, in one pass: a block owns rows, and no product is stored.

    O[e] = <G[i(e)] W[r(e)], X[j(e)]>

(The gradient of RGMS to the numbers of its edges.) A block of warps has a tile of rows of G, which it leaves in shared
memory, and goes through the relations of their edges, as `rgms_rows` does. For each it multiplies the rows, on Tensor
Cores or in full precision (``row_products``), and leaves the products in shared memory, too. Then each warp takes its
share of the relation's edges one by one: its lanes load a row of X, multiply it by the product of the edge's row, and
fold what they have by shuffles. What rows without edges of a relation are multiplied to is not met by any edge, so that
an Inf or NaN of a matrix stays with the edges it is for. All blocks on the diagonal of a matrix are multiplied before
the dots, each edge is one warp's: nothing is atomic.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, both, cast, equal
from ....compiler.language.program import Program
from ....compiler.language.types import BYTES
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import LANES, refuses
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.matrices import Matrices
from ...core.tiles.row_products import BlockSpec, refuses_lanes
from .owned_rows import OwnedRows, stride_of

SHARED = ("Near", "Products")


@dataclass(frozen=True)
class RgmsDotsSpec(BlockSpec):
    """What is static, as of a `BlockSpec`, with the rows of a tile at most for a block's. in_features, out_features: of
    a row of G and of one of X, in each of the `blocks` on the diagonal of W. parts: neighbouring elements of a row of
    G, and of X, that a lane loads together; powers of two that divide the widths, those of X of all blocks.
    """

    parts: tuple[int, int] = (1, 1)
    blocks: int = 1
    dtype: str = "float16"
    index_dtype: str = "int32"
    by_columns: bool = False

    @property
    def turns(self) -> int:
        """Times that it does for a block of the matrix."""
        return -(-self.out_features // self.width)

    @property
    def shares(self) -> int:
        """Shares of a relation's edges: one for each warp."""
        return self.warps[0] * self.warps[1]

    @property
    def strides(self) -> tuple[int, int]:
        """Elements from row to row of G and of the products, which are float32."""
        of_g = self.blocks * self.product.covered(self.in_features)
        return stride_of(of_g, self.dtype), stride_of(self.blocks * self.out_features, "float32")

    @property
    def shared_bytes(self) -> int:
        return self.rows * (self.strides[0] * BYTES[self.dtype] + self.strides[1] * BYTES["float32"])


def rgms_row_dots(spec: RgmsDotsSpec) -> Program:
    """The program.

    Parameters: (num_tiles, panels, shares, nnz, cols, relations, slots, rows, numbers, panel_ptr, owned_ptr, share_ptr,
    indices, Start, Stop, Relation, Place, Number, Row, G, X, W, O), as of `owned_rows`: tile t has the rows
    Row[Start[t]], ..., Row[Stop[t] - 1] of G, panel c has `spec.shares` shares, and an edge's dot goes to O[Number[e]].
    G is (rows, blocks, F_in), X (cols, blocks * F_out), W (relations, blocks, F_in, F_out) or by columns, O (numbers,
    1) float32.
    """
    _check(spec)
    covered = spec.product.covered(spec.in_features)
    p = ProgramBuilder("rgms_row_dots")
    tiles, products = OwnedRows(p, spec, "slots", "rows", "numbers"), Accumulators(p, spec)
    T, C, U, J, warp, lane = tiles.T, tiles.C, tiles.U, tiles.J, products.warp, products.lane
    slots, rows, numbers = tiles.more
    D, B = p.dense_fixed("D", spec.blocks), p.dense_fixed("B", spec.turns)
    Number = p.buffer("Number", (T, C, U, J), spec.index_dtype)
    Row = p.buffer("Row", (p.dense_fixed("Z", slots),), spec.index_dtype)
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    FX = p.dense_fixed("FX", spec.blocks * spec.out_features)
    G = p.buffer("G", (p.dense_fixed("NG", rows), D, FI), spec.dtype)
    X = p.buffer("X", (p.dense_fixed("NX", tiles.cols), FX), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", tiles.relations), D), FI, FO, spec.by_columns, spec.dtype)
    O = p.buffer("O", (p.dense_fixed("NO", numbers), p.dense_fixed("One", 1)), "float32")
    of_g, of_x = spec.parts
    each_g, each_x = p.role_axis("G", of_g, "part"), p.role_axis("X", of_x, "part")
    threads, loaded = products.threads, spec.rows * spec.blocks * spec.in_features
    fetch = p.role_axis("G", -(-loaded // (threads * of_g)), "turn")
    fold = p.role_axis("X", -(-FX.static_length // (LANES * of_x)), "turn")
    lack = spec.rows * spec.blocks * (covered - spec.in_features)
    lacking = p.role_axis("Z", -(-lack // threads), "turn") if lack else None
    stride, far = spec.strides
    kept = [p.dense_fixed(f"{name}_kept", spec.rows * elements) for name, elements in zip(SHARED, (stride, far))]

    def place_of(element: Expr, width: int, first: int = 0) -> Expr:
        """Where an element lies in shared memory, of ``width`` elements in each block of a row of G."""
        row, within = element // (spec.blocks * width), element % (spec.blocks * width)
        return row * stride + within // width * covered + first + within % width

    with p.iterate("owned", (T,), "S", ("t",)) as (t,):
        Near = p.local(SHARED[0], (kept[0],), spec.dtype)
        Products = p.local(SHARED[1], (kept[1],), "float32")
        with p.iterate("fetch", (fetch, warp, lane, each_g), "SSSS", ("tg", "wg", "lg", "eg")) as (s, w, l, e):
            element = ((s * warp.length + w) * LANES + l) * of_g
            row, feature = element // (spec.blocks * spec.in_features), element % (spec.blocks * spec.in_features)
            here = row < tiles.Stop[t] - tiles.Start[t]
            p.where(both(element < loaded, here) if loaded % (threads * of_g) else here)
            Near[place_of(element, spec.in_features) + e] = G[
                Row[tiles.Start[t] + row], feature // spec.in_features, feature % spec.in_features + e
            ]
        if lacking is not None:  # terms that the last step lacks
            with p.iterate("lack_a", (lacking, warp, lane), "SSS", ("tz", "wz", "lz_a")) as (s, w, l):
                element = (s * warp.length + w) * LANES + l
                if lack % threads:
                    p.where(element < lack)
                Near[place_of(element, covered - spec.in_features, spec.in_features)] = 0.0

        with p.iterate("each", (C,), "R", ("c",)) as (c,):
            with p.iterate("blocks", (D, B), "SS", ("d", "b")) as (d, b):

                def place(w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
                    row, column = spec.of_warp(w, m, n)
                    return row, b * spec.width + column

                def keep(row: Expr, column: Expr, value: Expr) -> None:
                    Products[row * far + d * spec.out_features + column] = value

                multiply = products.multiplier(
                    spec.in_features,
                    spec.out_features,
                    place,
                    lambda row, term: Near[row * stride + d * covered + term],
                    W[tiles.Relation[t, c], d],
                    by_columns=spec.by_columns,
                )
                CF = products.zeros("CF")
                multiply(CF)
                products.store(CF, place, keep)
            with p.iterate("edges_of_warps", (warp, U), "SS", ("we", "u")) as (w, u):
                p.where(equal(u, w))
                with p.iterate("edges", (J,), "R", ("j",)) as (j,):
                    Partial = p.local("Partial", (lane, each_x), "float32")
                    Folded = p.local("Folded", (lane,), "float32")
                    Dot = p.local("Dot", (), "float32")
                    with p.iterate("zero", (lane, each_x), "SS", ("l0", "e0")) as (l, e):
                        Partial[l, e] = 0.0
                    with p.iterate("terms_of_dot", (fold, lane, each_x), "RSS", ("s1", "l1", "e1")) as (s, l, e):
                        first = (s * LANES + l) * of_x
                        if FX.static_length % (LANES * of_x):
                            p.where(first < FX.length)
                        Partial[l, e] = Partial[l, e] + Products[tiles.Place[t, c, u, j] // 2 * far + first + e] * cast(
                            "float32", X[j, first + e]
                        )
                    with p.iterate("fold", (lane,), "S", ("l2",)) as (l,):
                        total: Expr = Partial[l, 0]
                        for part in range(1, of_x):
                            total = total + Partial[l, part]
                        Folded[l] = total
                    with p.iterate("dot", (lane,), "R", ("l3",)) as (l,):
                        with p.init():
                            Dot[()] = 0.0
                        Dot[()] = Dot[()] + Folded[l]
                    O[Number[t, c, u, j], 0] = Dot[()]
    return p.finish()


def _check(spec: RgmsDotsSpec) -> None:
    reason = refuses(spec.in_features, spec.out_features, spec.dtype) or refuses_lanes(spec.dtype, spec.across)
    if reason:
        raise StageIError(f"rgms_row_dots: {reason}")
    if spec.in_features % spec.parts[0] or spec.blocks * spec.out_features % spec.parts[1]:
        raise StageIError(
            f"rgms_row_dots: parts of {spec.parts} do not divide rows of {spec.in_features} and of {spec.blocks} times "
            f"{spec.out_features} features"
        )
