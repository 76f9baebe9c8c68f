"""Points near others, by cells of a grid: kernels that are written at stage III.

Points are in the order of their cells (`cells`), coordinate by coordinate, so that those of neighbouring cells along
the last axis are one run, and `LANES` of them are measured at once. Queries are searched for in the order of theirs:
what is near to one is near to the next. A query looks at its cloud alone.

Stage I has neither loops that end at a condition nor an order to keep: so this begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .cells import LANES
from .neighbours import _below, _State
from .search import Search
from .writing import argument, array, finished, local, long, named, unsigned

FLAT = 6
"""Coordinates up to which points are in small cells: of more all are measured, and most of them in vain."""
STEP = 4
"""Points of a list that are moved at once: it has room for a multiple."""
_ADDED = 0x00100000


def columns_of(dtype: str) -> int:
    """The columns of a `_List`."""
    return 1 if dtype == "float32" else 2


def nearest_function(width: int, dtype: str) -> tirx.PrimFunc:
    """The k nearest points of each query, the nearest first, of equally near ones that of the lower number.

    Rings of cells around a query's own are visited until what is left is further than what was found; of a ring, no
    cells that are.

    Parameters: those of `Search`; k; limit, float64: the square below which distances are; room, k or more, a multiple
    of STEP; found (2 * count * k,) int64, written: the queries, and behind them the points, -1 where there is none;
    missing (chunks,) int64, written: how many of these there are; lists (chunks * columns * (room + 1),) float64,
    workspace, of the columns of `_List`.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("nearest_points")
        T.func_attr({"tirx.noalias": True})
        search = Search(width, dtype)
        k, limit, room = argument("k", "int64"), argument("limit", "float64"), argument("room", "int64")
        drawn = search.count * k
        found, missing = array("found", drawn * 2, "int64"), array("missing", search.chunks, "int64")
        lists = _List(search.chunks, k, limit, room, dtype)
        with search.share() as chunk:
            absent = local("absent", (1,), "int64")
            T.buffer_store(absent, long(0), [0])
            lists.of(chunk)
            with search.queries_of(chunk) as (_, q):
                lists.clear()

                def take(at: tirx.Expr, end: tirx.Expr) -> None:
                    nearest = search.near[0]
                    for lane in range(1, LANES):
                        nearest = tirx.min(nearest, search.near[lane])
                    with (
                        T.If(named("nearest", nearest) <= lists.worst[0]),
                        T.Then(),
                        T.serial(0, tirx.min(long(LANES), end - at)) as lane,
                    ):
                        distance = named("distance", search.near[lane])
                        with T.If(distance <= lists.worst[0]), T.Then():
                            lists.insert(distance, named("number", search.numbers[at + lane]))

                ring, going = local("ring", (1,), "int64"), local("going", (1,), "int64")
                T.buffer_store(ring, long(0), [0])
                T.buffer_store(going, long(1), [0])
                with T.While(going[0] > 0):
                    r = named("r", ring[0])
                    search.ring(r, lambda square: square <= lists.reach(), take)
                    bound = search.reached(r)
                    with T.If(tirx.any(bound[0] < 0, lists.reach() < bound[0] * bound[0])), T.Then():
                        T.buffer_store(going, long(0), [0])
                    T.buffer_store(ring, r + 1, [0])
                with T.serial(0, k) as i:
                    number = named("number", lists.number(i))
                    T.buffer_store(found, q, [q * k + i])
                    T.buffer_store(found, number, [drawn + q * k + i])
                    T.buffer_store(absent, absent[0] + tirx.Select(number < 0, long(1), long(0)), [0])
            T.buffer_store(missing, absent[0], [chunk])
    return finished(builder, "nearest_points")


def within_function(width: int, dtype: str, counts: bool) -> tirx.PrimFunc:
    """The points whose distance from each query is less than a radius: how many (counts), or which.

    Where there are more than ``most``, each is as likely to be among those that are kept: the first ``most`` are, and
    each later one takes the place of one of them or of nobody (reservoir sampling), by counted random numbers.

    Parameters: those of `Search`; radius, float64; same: above 0 where the point with the query's number is left out;
    of counts: totals (count,) int64, written: the points found; else drawn, how many are kept; room, more by LANES than
    any query has points; stream; pointers (count + 1,) int64, where the kept points of each query begin; lists (chunks
    * room,) int32, workspace; found (2 * drawn,) int64, written: the queries, and behind them the points.
    """
    name = "points_within" if not counts else "count_within"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        search = Search(width, dtype)
        radius, same = argument("radius", "float64"), argument("same", "int64")
        if counts:
            totals = array("totals", search.count, "int64")
        else:
            drawn, room, stream = (argument(each, "int64") for each in ("drawn", "room", "stream"))
            pointers, lists = (
                array("pointers", search.count + 1, "int64"),
                array("lists", search.chunks * room, "int32"),
            )
            found = array("found", drawn * 2, "int64")
        with search.share() as chunk, search.queries_of(chunk) as (number, q):
            limit = named("limit", tirx.Cast(dtype, radius * radius))
            without = named("without", tirx.Select(same > 0, number, tirx.const(-1, "int32")))
            hits, have = local("hits", (LANES,), "int32"), local("have", (1,), "int64")
            T.buffer_store(have, long(0), [0])
            if counts:
                sums = local("sums", (LANES,), "int32")
                with T.vectorized(0, LANES) as lane:
                    T.buffer_store(sums, tirx.const(0, "int32"), [lane])

            def take(at: tirx.Expr, end: tirx.Expr) -> None:
                left = named("left", tirx.Cast("int32", tirx.min(end - at, long(LANES))))
                with T.vectorized(0, LANES) as lane:
                    one = tirx.all(search.near[lane] < limit, lane < left, search.numbers[at + lane] != without)
                    hit = tirx.Select(one, tirx.const(1, "int32"), tirx.const(0, "int32"))
                    if counts:
                        T.buffer_store(sums, sums[lane] + hit, [lane])
                    else:
                        T.buffer_store(hits, hit, [lane])
                if not counts:  # a branch for each point would be foreseen wrongly each time that one is near
                    for lane in range(LANES):
                        T.buffer_store(lists, search.numbers[at + lane], [chunk * room + have[0]])
                        T.buffer_store(have, have[0] + tirx.Cast("int64", hits[lane]), [0])

            search.box(radius, take)
            if counts:
                total = sums[0]
                for lane in range(1, LANES):
                    total = total + sums[lane]
                T.buffer_store(totals, tirx.Cast("int64", total), [q])
            else:
                _keep(q, lists, chunk * room, have[0], pointers, found, drawn, stream)
    return finished(builder, name)


def _keep(
    q: tirx.Expr,
    lists: tirx.Buffer,
    first: tirx.Expr,
    have: tirx.Expr,
    pointers: tirx.Buffer,
    found: tirx.Buffer,
    drawn: tirx.Expr,
    stream: tirx.Expr,
) -> None:
    """Write what a query keeps of the points of a list."""
    at, most = named("at", pointers[q]), named("most", pointers[q + 1] - pointers[q])
    with T.serial(0, most) as n:
        T.buffer_store(found, q, [at + n])
        T.buffer_store(found, tirx.Cast("int64", lists[first + n]), [drawn + at + n])
    state = _State(stream, q, None)
    with T.serial(0, have - most) as n:
        chosen = named("chosen", _below(state.number(n), most + n + 1))
        with T.If(chosen < most), T.Then():
            T.buffer_store(found, tirx.Cast("int64", lists[first + most + n]), [drawn + at + chosen])


class _List:
    """The k nearest points of a query, in columns of float64 that ascend: number and distance of float32 are one
    number, which is compared at once; of float64 the distance is the first column, and the number the second.

    Before the first entry is one that is less than all.
    """

    def __init__(self, chunks: tirx.Expr, k: tirx.Expr, limit: tirx.Expr, room: tirx.Expr, dtype: str) -> None:
        self.k, self.room, self.dtype = k, room, dtype
        self.columns = columns_of(dtype)
        self.lists = array("lists", chunks * self.columns * (room + 1), "float64")
        self.limit = tirx.Cast(dtype, limit)

    def of(self, chunk: tirx.Expr) -> None:
        """Turn to the list of a thread."""
        self.base = named("base", chunk * self.columns * (self.room + 1))
        self.nothing = [named("nothing", each) for each in self._key(self.limit, long(0))]
        self.worst = local("worst", (1,), self.dtype)
        self.shifted = local("shifted", (self.columns, STEP), "float64")
        for column in range(self.columns):
            T.buffer_store(self.lists, tirx.const(-1.0, "float64"), [self._at(column, -1)])

    def clear(self) -> None:
        for column, nothing in enumerate(self.nothing):
            with T.serial(0, self.room) as i:
                T.buffer_store(self.lists, nothing, [self._at(column, i)])
        T.buffer_store(self.worst, self.limit, [0])

    def reach(self) -> tirx.Expr:
        """The square of a distance beyond which nothing is wanted, whatever was rounded."""
        return tirx.Cast("float64", self.worst[0]) * tirx.const(1.00001, "float64")

    def insert(self, distance: tirx.Expr, number: tirx.Expr) -> None:
        """Put a point where it belongs, if that is before the last entry: without a branch, each entry is what it was,
        the one before it, or the new one."""
        key = [named("key", each) for each in self._key(distance, number)]
        blocks = named("blocks", tirx.truncdiv(self.room, long(STEP)))
        with T.serial(0, blocks) as n:
            first = named("first", (blocks - 1 - n) * STEP)
            with T.vectorized(0, STEP) as lane:
                here, before = (
                    [self.lists[self._at(c, first + lane + shift)] for c in range(self.columns)] for shift in (0, -1)
                )
                for c in range(self.columns):
                    moved = tirx.Select(self._less(key, here), key[c], here[c])
                    T.buffer_store(self.shifted, tirx.Select(self._less(key, before), before[c], moved), [c, lane])
            for c in range(self.columns):
                with T.vectorized(0, STEP) as lane:
                    T.buffer_store(self.lists, self.shifted[c, lane], [self._at(c, first + lane)])
        last = named("last", self.lists[self._at(0, self.k - 1)])
        T.buffer_store(self.worst, self._distance(last), [0])

    def number(self, i: tirx.Expr) -> tirx.Expr:
        """The number of an entry, -1 where there is none."""
        entry = [self.lists[self._at(c, i)] for c in range(self.columns)]
        if self.columns == 1:
            number = tirx.Cast("int64", tirx.reinterpret("uint64", entry[0]) & unsigned(0xFFFFFFFF))
        else:
            number = tirx.Cast("int64", entry[1])
        return tirx.Select(entry[0] < self.nothing[0], number, long(-1))

    def _at(self, column: int, i: tirx.Expr | int) -> tirx.Expr:
        return self.base + column * (self.room + 1) + 1 + i

    def _key(self, distance: tirx.Expr, number: tirx.Expr) -> list[tirx.Expr]:
        if self.columns == 2:
            return [distance, tirx.Cast("float64", number)]
        # the bits of numbers that are not negative ascend with them; the addend keeps the exponent off 0
        bits = tirx.Cast("uint64", tirx.reinterpret("uint32", distance)) + unsigned(_ADDED)
        return [tirx.reinterpret("float64", (bits << unsigned(32)) | tirx.Cast("uint64", number))]

    def _distance(self, entry: tirx.Expr) -> tirx.Expr:
        if self.columns == 2:
            return entry
        bits = (tirx.reinterpret("uint64", entry) >> unsigned(32)) - unsigned(_ADDED)
        return tirx.reinterpret("float32", tirx.Cast("uint32", bits))

    @staticmethod
    def _less(one: list[tirx.Expr], other: list[tirx.Expr]) -> tirx.Expr:
        if len(one) == 1:
            return one[0] < other[0]
        return tirx.any(one[0] < other[0], tirx.all(one[0] == other[0], one[1] < other[1]))
