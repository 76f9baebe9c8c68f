"""Neighbours of nodes, drawn at random: kernels that are written at stage III.

A node is a key, ``tree * span + node``, where each of several trees numbers its nodes by itself; with one tree it is
the node. The neighbours of a node stand at ``first`` and behind it, ``population`` of them.

Random numbers are counted, not taken one after the other: those of a key are Philox4x32-10 (Salmon et al., 2011) of the
counter (key's lower half, its upper half, block, part), with the stream as its key. A number has 64 bits, the upper
half from part 0, where each block has those of four numbers, and the lower half from part 1. One below r is the upper
half of a product with r; up to ``NARROW`` the lower bits are left out, and are 0: no outcome has 2**-16 of its share
more or less. So what is drawn for a node depends on no other, and on no thread.

TVM's products must not overflow, unsigned ones neither: this generator's are of 32 bits each.

Stage I has neither loops that end at a condition nor bitwise operators: so this begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named, unsigned

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
INCREMENTS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
NARROW = 1 << 16
"""Neighbours up to which one of them is drawn with 32 random bits."""
_LOWER = 0xFFFFFFFF
SCANNED = 16
"""Fewest neighbours for each pair of numbers drawn at which a sample without replacement compares these numbers with
each other; with fewer, it visits all neighbours in order."""
UNIFORM, REPLACED, WEIGHTED, WEIGHTED_REPLACED = "uniform", "replaced", "weighted", "weighted_replaced"


def bounds_function(index: str, times: str = "") -> tirx.PrimFunc:
    """Where neighbours stand that may be drawn, and how many will be.

    Parameters: count, nodes, edges, fanout (below 0: all), replace, span; keys (count,); indptr; first, population
    (count,) and pointers (count + 1,), which are written: int64, but for indptr of type ``index``.

    times: "edge" or "node": also sources, indices, last, moments and latest. Neighbours ascend in time; those that are
    not after ``latest[tree]`` may be drawn, with ``last`` only the last ``fanout`` of these. moments: int64, of every
    position, or of every source.
    """
    name = f"neighbour_bounds{times and '_' + times}"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        count, nodes, edges, fanout, replace, span = _sizes("count", "nodes", "edges", "fanout", "replace", "span")
        keys, indptr = array("keys", count, "int64"), array("indptr", nodes + 1, index)
        if times:
            sources, trees, last = _sizes("sources", "trees", "last")
            indices = array("indices", edges, index)
            moments = array("moments", edges if times == "edge" else sources, "int64")
            latest = array("latest", trees, "int64")
        first, population = array("first", count, "int64"), array("population", count, "int64")
        pointers = array("pointers", count + 1, "int64")
        with T.parallel(0, count) as i:
            node = named("node", tirx.if_then_else(keys[i] < span, keys[i], tirx.truncmod(keys[i], span)))
            begin = local("begin", (1,), "int64")
            end = local("end", (1,), "int64")
            T.buffer_store(begin, tirx.Cast("int64", indptr[node]), [0])
            T.buffer_store(end, tirx.Cast("int64", indptr[node + 1]), [0])
            if times:
                limit, low = named("limit", latest[keys[i] // span]), local("low", (1,), "int64")
                T.buffer_store(low, begin[0], [0])
                with T.While(low[0] < end[0]):
                    middle = named("middle", (low[0] + end[0]) >> 1)
                    moment = moments[middle if times == "edge" else tirx.Cast("int64", indices[middle])]
                    with T.If(moment <= limit):
                        with T.Then():
                            T.buffer_store(low, middle + 1, [0])
                        with T.Else():
                            T.buffer_store(end, middle, [0])
                with T.If(tirx.all(last > 0, fanout >= 0)), T.Then():
                    T.buffer_store(begin, tirx.max(begin[0], end[0] - fanout), [0])
            found = named("found", end[0] - begin[0])
            drawn = tirx.Select(replace > 0, tirx.Select(found > 0, fanout, long(0)), tirx.min(found, fanout))
            T.buffer_store(first, begin[0], [i])
            T.buffer_store(population, found, [i])
            T.buffer_store(pointers, tirx.Select(fanout < 0, found, drawn), [i + 1])
        T.buffer_store(pointers, long(0), [0])
        with T.serial(0, count) as i:
            T.buffer_store(pointers, pointers[i] + pointers[i + 1], [i + 1])
    return finished(builder, name)


def draw_function(index: str, way: str, weight: str = "float32") -> tirx.PrimFunc:
    """Neighbours, drawn: as many of a key as its pointers leave room for, by one of four ways.

    Parameters: count, drawn, edges, all (above 0: every neighbour is taken), start, stream; keys, first, population,
    pointers as `bounds_function` leaves them; indices (edges,); of the weighted ways weights (edges,), ratings (drawn,)
    float64, which is workspace, and wrong (1,), a key of which some weights are below 0 or not numbers, or none is
    above 0 where one must be. Written: positions, neighbours and rows, (drawn,), where row i is ``start + i``.
    """
    name = f"neighbours_{way}"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        count, drawn, edges, all_, start, stream = _sizes("count", "drawn", "edges", "all", "start", "stream")
        keys, first = array("keys", count, "int64"), array("first", count, "int64")
        population, pointers = array("population", count, "int64"), array("pointers", count + 1, "int64")
        indices = array("indices", edges, index)
        if way in (WEIGHTED, WEIGHTED_REPLACED):
            weights, ratings = array("weights", edges, weight), array("ratings", drawn, "float64")
            wrong = array("wrong", 1, "int64")
        positions, neighbours, rows = (array(each, drawn, "int64") for each in ("positions", "neighbours", "rows"))
        with T.parallel(0, count) as i:
            at, many = named("at", pointers[i]), named("many", pointers[i + 1] - pointers[i])
            begin, among = named("begin", first[i]), named("among", population[i])
            state = _State(stream, keys[i], among if way in (UNIFORM, REPLACED) else None)
            whole = all_ > 0 if way in (REPLACED, WEIGHTED_REPLACED) else tirx.any(many == among, many == 0)
            with T.If(whole):
                with T.Then(), T.serial(0, many) as k:
                    T.buffer_store(positions, begin + k, [at + k])
                with T.Else():
                    if way == UNIFORM:
                        with T.If(many * many <= SCANNED * among):
                            with T.Then():
                                _floyd(state, at, many, begin, among, positions)
                            with T.Else():
                                _in_order(state, at, many, begin, among, positions)
                    elif way == REPLACED:
                        with T.serial(0, many) as k:
                            T.buffer_store(positions, begin + _below(state.number(k), among), [at + k])
                    elif way == WEIGHTED:
                        _best(state, keys[i], at, many, begin, among, weights, ratings, wrong, positions)
                    else:
                        _by_steps(state, keys[i], at, many, begin, among, weights, wrong, positions)
            with T.serial(0, many) as k:
                T.buffer_store(neighbours, tirx.Cast("int64", indices[positions[at + k]]), [at + k])
                T.buffer_store(rows, start + i, [at + k])
    return finished(builder, name)


def _floyd(
    state: _State, at: tirx.Expr, many: tirx.Expr, begin: tirx.Expr, among: tirx.Expr, positions: tirx.Buffer
) -> None:
    """A set of ``many`` numbers below ``among`` (Floyd's algorithm): one that is there already is the last instead."""
    known = local("known", (1,), "int64")
    with T.serial(0, many) as k:
        last = named("last", among - many + k)
        chosen = named("chosen", begin + _below(state.number(k), last + 1))
        T.buffer_store(known, long(0), [0])
        with T.serial(0, k) as j:
            T.buffer_store(known, known[0] | tirx.Select(positions[at + j] == chosen, long(1), long(0)), [0])
        T.buffer_store(positions, tirx.Select(known[0] > 0, begin + last, chosen), [at + k])


def _in_order(
    state: _State, at: tirx.Expr, many: tirx.Expr, begin: tirx.Expr, among: tirx.Expr, positions: tirx.Buffer
) -> None:
    """Each neighbour is taken with the chance that leaves all sets equal: those wanted over those left."""
    taken = local("taken", (1,), "int64")
    T.buffer_store(taken, long(0), [0])
    with T.serial(0, among) as j, T.If(_below(state.number(j), among - j) < many - taken[0]), T.Then():
        T.buffer_store(positions, begin + j, [at + taken[0]])
        T.buffer_store(taken, taken[0] + 1, [0])


def _best(
    state: _State,
    key: tirx.Expr,
    at: tirx.Expr,
    many: tirx.Expr,
    begin: tirx.Expr,
    among: tirx.Expr,
    weights: tirx.Buffer,
    ratings: tirx.Buffer,
    wrong: tirx.Buffer,
    positions: tirx.Buffer,
) -> None:
    """The ``many`` neighbours of the largest log(u) / weight (Efraimidis and Spirakis, 2006), the largest first."""
    have, place = local("have", (1,), "int64"), local("place", (1,), "int64")
    T.buffer_store(have, long(0), [0])
    with T.serial(0, among) as j:
        weight = _weight(key, weights, begin + j, wrong)
        rating = named("rating", tirx.log(_unit(state.number(j))) / weight)
        last = named("last", at + tirx.max(have[0] - 1, long(0)))
        with T.If(tirx.any(have[0] < many, rating > ratings[last])), T.Then():
            T.buffer_store(place, at + tirx.min(have[0], many - 1), [0])
            T.buffer_store(have, tirx.min(have[0] + 1, many), [0])
            going = local("going", (1,), "int64")
            T.buffer_store(going, long(1), [0])
            with T.While(going[0] > 0):
                before = named("before", tirx.max(place[0] - 1, at))
                with T.If(tirx.all(place[0] > at, rating > ratings[before])):
                    with T.Then():
                        T.buffer_store(ratings, ratings[before], [place[0]])
                        T.buffer_store(positions, positions[before], [place[0]])
                        T.buffer_store(place, before, [0])
                    with T.Else():
                        T.buffer_store(going, long(0), [0])
            T.buffer_store(ratings, rating, [place[0]])
            T.buffer_store(positions, begin + j, [place[0]])


def _by_steps(
    state: _State,
    key: tirx.Expr,
    at: tirx.Expr,
    many: tirx.Expr,
    begin: tirx.Expr,
    among: tirx.Expr,
    weights: tirx.Buffer,
    wrong: tirx.Buffer,
    positions: tirx.Buffer,
) -> None:
    """``many`` numbers below the sum of the weights in ascending order, and the neighbours on whose weights they fall.

    The least of m uniform numbers above v is 1 - (1 - v) * u ** (1 / m).
    """
    total, reached, level = (local(name, (1,), "float64") for name in ("total", "reached", "level"))
    taken, last = local("taken", (1,), "int64"), local("last", (1,), "int64")
    zero = tirx.const(0.0, "float64")
    for each in (total, reached, level):
        T.buffer_store(each, zero, [0])
    T.buffer_store(taken, long(0), [0])
    T.buffer_store(last, begin, [0])
    with T.serial(0, among) as j:
        weight = _weight(key, weights, begin + j, wrong)
        T.buffer_store(total, total[0] + weight, [0])
        with T.If(weight > zero), T.Then():
            T.buffer_store(last, begin + j, [0])
    with T.If(tirx.Not(total[0] > zero)), T.Then():
        T.buffer_store(wrong, key, [0])
    T.buffer_store(level, _next_level(state, long(0), many, zero), [0])
    with T.serial(0, among) as j:
        T.buffer_store(reached, reached[0] + tirx.Cast("float64", weights[begin + j]), [0])
        with T.While(tirx.all(taken[0] < many, level[0] * total[0] < reached[0])):
            T.buffer_store(positions, begin + j, [at + taken[0]])
            T.buffer_store(taken, taken[0] + 1, [0])
            T.buffer_store(level, _next_level(state, taken[0], many, level[0]), [0])
    with T.While(taken[0] < many):  # a number that was rounded up to the sum
        T.buffer_store(positions, last[0], [at + taken[0]])
        T.buffer_store(taken, taken[0] + 1, [0])


def _next_level(state: _State, k: tirx.Expr, many: tirx.Expr, level: tirx.Expr) -> tirx.Expr:
    one, left = tirx.const(1.0, "float64"), tirx.Cast("float64", tirx.max(many - k, long(1)))
    return one - (one - level) * tirx.exp(tirx.log(_unit(state.number(k))) / left)


def _weight(key: tirx.Expr, weights: tirx.Buffer, place: tirx.Expr, wrong: tirx.Buffer) -> tirx.Var:
    weight = named("weight", tirx.Cast("float64", weights[place]))
    with T.If(tirx.Not(weight >= tirx.const(0.0, "float64"))), T.Then():
        T.buffer_store(wrong, key, [0])
    return weight


def _sizes(*names: str) -> list[tirx.Var]:
    return [argument(name, "int64") for name in names]


def _word(value: tirx.Expr) -> tirx.Expr:
    return tirx.Cast("uint64", value)


def _below(word: tirx.Expr, most: tirx.Expr) -> tirx.Expr:
    """Map a random word to a number in [0, most), most < 2**31."""
    most = T.bind(_word(most))
    low = ((word & unsigned(_LOWER)) * most) >> unsigned(32)
    return tirx.Cast("int64", ((word >> unsigned(32)) * most + low) >> unsigned(32))


def _unit(word: tirx.Expr) -> tirx.Expr:
    """Map a random word to a number in (0, 1)."""
    half, scale = tirx.const(0.5, "float64"), tirx.const(2.0**-52, "float64")
    return (tirx.Cast("float64", tirx.Cast("int64", word >> unsigned(12))) + half) * scale


class _State:
    """The random numbers of a key. among: below which they will be used; None for numbers in (0, 1)."""

    def __init__(self, stream: tirx.Expr, key: tirx.Expr, among: tirx.Expr | None) -> None:
        self.counter = [T.bind(half) for half in _halves(_word(key))]
        self.key = [T.bind(half) for half in _halves(_word(stream))]
        self.parts = [local(name, (4,), "uint64") for name in ("upper", "lower")]
        self.wide = tirx.const(True, "bool") if among is None else among > NARROW
        for word in range(4):
            T.buffer_store(self.parts[1], unsigned(0), [word])

    def number(self, k: tirx.Expr) -> tirx.Expr:
        """Number k: uint64. Numbers are asked for in order, from 0 on: a block is made at the first of its four."""
        at = named("at", _word(k))
        with T.If(at & unsigned(3) == unsigned(0)), T.Then():
            self._make(0, at >> unsigned(2))
            with T.If(self.wide), T.Then():
                self._make(1, at >> unsigned(2))
        word = tirx.Cast("int32", at & unsigned(3))
        upper, lower = self.parts
        return T.bind((upper[word] << unsigned(32)) | lower[word])

    def _make(self, part: int, block: tirx.Expr) -> None:
        for at, word in enumerate(self._block(block, part)):
            T.buffer_store(self.parts[part], word, [at])

    def _block(self, block: tirx.Expr, part: int) -> list[tirx.Expr]:
        words, keys = [*self.counter, block, unsigned(part)], self.key
        for _ in range(ROUNDS):
            first, second = (T.bind(words[2 * half] * unsigned(factor)) for half, factor in enumerate(MULTIPLIERS))
            words = [
                T.bind((second >> unsigned(32)) ^ words[1] ^ keys[0]),
                T.bind(second & unsigned(_LOWER)),
                T.bind((first >> unsigned(32)) ^ words[3] ^ keys[1]),
                T.bind(first & unsigned(_LOWER)),
            ]
            keys = [T.bind((key + unsigned(step)) & unsigned(_LOWER)) for key, step in zip(keys, INCREMENTS)]
        return words


def _halves(word: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
    return word & unsigned(_LOWER), word >> unsigned(32)
