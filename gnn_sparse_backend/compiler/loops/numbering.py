"""Keys numbered in the order in which they first appear: kernels that are written at stage III.

A table has the number of a key at the key's place, or -1. With ``hashed`` the place is a hash of the key, or one of
those behind it (linear probing), and which key stands there is told by the keys themselves; otherwise it is the key.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named, unsigned

FACTOR = 0x9E3779B1
"""Multiplier of the hash: the golden ratio in 32 bits."""
FILL, NUMBER, FIND = "fill", "number", "find"


def numbering_function(what: str, hashed: bool) -> tirx.PrimFunc:
    """One of

        fill     keys from number ``begin`` on have their number, or that of an equal one before
        number   neighbours have the number of their key, and are put behind the keys where they are new
        find     neighbours have the number of their key, or -1

    Parameters: places, mask and shift (of a hash, whose table has mask + 1 places, 2 ** (32 - shift)), most; table
    (places,) int32; keys (most,) int64. fill: begin, end. The others: count, drawn, span, other; rows (count,) keys
    with the span ``span``; pointers (count + 1,) and neighbours (drawn,), of which row i has those from pointers[i]
    on, in the same tree as the row and with the span ``other``; size (1,), how many keys there are, and is
    written; numbers (drawn,), which are written.
    """
    name = f"{what}_numbers{'_hashed' if hashed else ''}"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        places, mask, shift, most = (argument(each, "int64") for each in ("places", "mask", "shift", "most"))
        table, keys = array("table", places, "int32"), array("keys", most, "int64")
        given = table, keys, mask, shift, hashed
        _fill(*given) if what == FILL else _number(what, *given)
    return finished(builder, name)


def _fill(table: tirx.Buffer, keys: tirx.Buffer, mask: tirx.Expr, shift: tirx.Expr, hashed: bool) -> None:
    begin, end = (argument(each, "int64") for each in ("begin", "end"))
    with T.serial(0, end - begin) as i:
        place = _place(keys[begin + i], table, keys, mask, shift, hashed)
        with T.If(table[place] < 0), T.Then():
            T.buffer_store(table, tirx.Cast("int32", begin + i), [place])


def _number(what: str, table: tirx.Buffer, keys: tirx.Buffer, mask: tirx.Expr, shift: tirx.Expr, hashed: bool) -> None:
    count, drawn, span, other = (argument(each, "int64") for each in ("count", "drawn", "span", "other"))
    rows, pointers = array("rows", count, "int64"), array("pointers", count + 1, "int64")
    neighbours, size = array("neighbours", drawn, "int64"), array("size", 1, "int64")
    numbers, known = array("numbers", drawn, "int64"), local("known", (1,), "int64")
    T.buffer_store(known, size[0], [0])
    with T.serial(0, count) as i:
        tree = named("tree", tirx.if_then_else(rows[i] < span, long(0), tirx.truncdiv(rows[i], span) * other))
        with T.serial(0, pointers[i + 1] - pointers[i]) as k:
            e = named("e", pointers[i] + k)
            key = named("key", tree + neighbours[e])
            place = _place(key, table, keys, mask, shift, hashed)
            if what == NUMBER:
                with T.If(table[place] < 0), T.Then():
                    T.buffer_store(table, tirx.Cast("int32", known[0]), [place])
                    T.buffer_store(keys, key, [known[0]])
                    T.buffer_store(known, known[0] + 1, [0])
            T.buffer_store(numbers, tirx.Cast("int64", table[place]), [e])
    if what == NUMBER:
        T.buffer_store(size, known[0], [0])


def _place(
    key: tirx.Expr, table: tirx.Buffer, keys: tirx.Buffer, mask: tirx.Expr, shift: tirx.Expr, hashed: bool
) -> tirx.Expr:
    """Where the key stands, or the free place where it would."""
    if not hashed:
        return key
    place, looking = local("place", (1,), "int64"), local("looking", (1,), "int32")
    word = T.bind(tirx.Cast("uint64", key))
    folded = (word ^ (word >> unsigned(32))) & unsigned(0xFFFFFFFF)  # products must not overflow
    first = ((folded * unsigned(FACTOR)) & unsigned(0xFFFFFFFF)) >> tirx.Cast("uint64", shift)
    T.buffer_store(place, tirx.Cast("int64", first), [0])
    T.buffer_store(looking, tirx.const(1, "int32"), [0])
    with T.While(looking[0] > 0):
        number = named("number", table[place[0]])
        with T.If(number < 0):
            with T.Then():
                T.buffer_store(looking, tirx.const(0, "int32"), [0])
            with T.Else(), T.If(keys[number] == key):
                with T.Then():
                    T.buffer_store(looking, tirx.const(0, "int32"), [0])
                with T.Else():
                    T.buffer_store(place, (place[0] + long(1)) & mask, [0])
    return place[0]
