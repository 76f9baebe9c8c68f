"""PyTorch's CPU generator, mt19937, as a kernel of vectors (Matsumoto and Nishimura, 1998).

Word t of the sequence follows from words t - 624, t - 623 and t - 227. Numbers of 53 bits take two words each, so the
words with even numbers and those with odd ones are kept apart: E[s] is word 2s, and O[s] is word 2s + 1, which gives

    E[s] = O[s - 114] ^ twist(E[s - 312], O[s - 312])
    O[s] = E[s - 113] ^ twist(O[s - 312], E[s - 311])

Nothing reaches back less than 113 words: vectors of up to 113 words may follow each other in order. An element that
begins at an even word is (E[s], O[s]), one that begins at an odd word is (O[s - 1], E[s]): every access has stride 1.

A number is compared by its upper 21 bits. The lower 32, for which the other word is needed, decide where these are
equal, which one number in two million meets: then all of a block are compared again.

Stage I has a recurrence only as a reduction, one element after the other, and neither shifts nor bitwise operators: so
this begins at stage III.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

PAIRS = 312
"""Pairs of words in a block of the generator."""
LANES = 8
"""Words that are made at once; it divides `PAIRS`."""
BLOCKS = 8
"""Blocks that are made before the last of them is moved to the front: with the one before them, 22 KiB."""

_LEFT, _NEXT, _WORDS, _STATE = 1, 2, 3, 632
"""Offsets in PyTorch's state, in units of 64 bits: ``left``, the words left of a block, in the lower half of a unit;
``next``, the next word; the words, one to a unit; and the length of the state. ``left`` is 625 - ``next`` once a word
was taken, and 1 while none was."""


def bernoulli_function() -> tirx.PrimFunc:
    """Draws of PyTorch's ``bernoulli_(p)``, at stage III.

    Parameters of the function: count >= 1; high and low, the upper 21 and the lower 32 bits of the threshold
    ceil(p * 2**53), below which a number of 53 bits is a 1; state, (632,) int64, PyTorch's state of a generator, which
    is advanced; drawn, (count,) uint8.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("mt19937_bernoulli")
        T.func_attr({"tirx.noalias": True})
        count, high, low = (argument(name, "int64") for name in ("count", "high", "low"))
        state = array("state", _STATE, "int64")
        drawn = array("drawn", count, "uint8")
        words = local("words", (2 * (BLOCKS + 1) * PAIRS,), "uint32")
        bits = local("bits", (PAIRS,), "uint8")
        level, total = local("level", (LANES,), "uint32"), local("total", (1,), "uint32")
        _draw(count, high, low, state, drawn, words, bits, level, total)
    return finished(builder, "mt19937_bernoulli")


def _draw(
    count: tirx.Var,
    high: tirx.Var,
    low: tirx.Var,
    state: tirx.Buffer,
    drawn: tirx.Buffer,
    words: tirx.Buffer,
    bits: tirx.Buffer,
    level: tirx.Buffer,
    total: tirx.Buffer,
) -> None:
    """Block b stands at slot b % BLOCKS + 1 of both parities; the block before it stands at the slot before."""
    odd_row = (BLOCKS + 1) * PAIRS
    taken = named("taken", 625 - (state[_LEFT] & long(0xFFFFFFFF)))  # words of block 0
    odd = named("odd", taken & 1)
    first = named("first", (taken + 1) >> 1)  # the pair of block 0 with which element 0 ends
    last = named("last", (count + first - 1) // PAIRS)  # the last block
    with T.serial(0, PAIRS) as s:
        for parity in (0, 1):
            word = tirx.Cast("uint32", state[_WORDS + 2 * s + parity])
            T.buffer_store(words, word, [parity * odd_row + PAIRS + s])
    with T.serial(0, last + 1) as b:
        new = named("new", (b % BLOCKS + 1) * PAIRS)
        with T.If(b > 0), T.Then():
            with T.If(new == PAIRS), T.Then():
                for row in (0, odd_row):
                    with _vectors() as (i, lane):
                        T.buffer_store(words, words[row + BLOCKS * PAIRS + i], [row + i])
            with _vectors() as (i, lane):
                s = new + i
                even = words[odd_row + s - 114] ^ _twist(words[s - 312], words[odd_row + s - 312])
                T.buffer_store(words, even, [s])
                other = words[s - 113] ^ _twist(words[odd_row + s - 312], words[s - 311])
                T.buffer_store(words, other, [odd_row + s])
        before = named("before", odd * (odd_row - 1) + new)
        after = named("after", (1 - odd) * odd_row + new)
        top, bottom = named("top", tirx.Cast("uint32", high)), named("bottom", tirx.Cast("uint32", low))
        with T.vectorized(0, LANES) as lane:  # whether an upper word is the threshold's
            T.buffer_store(level, _word(0), [lane])
        with _vectors() as (i, lane):
            upper = _tempered(words[before + i]) & _word(0x1FFFFF)
            T.buffer_store(bits, _one_where(upper < top, "uint8"), [i])
            T.buffer_store(level, level[lane] | _one_where(upper == top, "uint32"), [lane])
        T.buffer_store(total, _word(0), [0])
        with T.serial(0, LANES) as lane:
            T.buffer_store(total, total[0] | level[lane], [0])
        with T.If(total[0] > _word(0)), T.Then(), _vectors() as (i, lane):
            upper = _tempered(words[before + i]) & _word(0x1FFFFF)
            below = tirx.all(upper == top, _tempered(words[after + i]) < bottom)
            T.buffer_store(bits, bits[i] | _one_where(below, "uint8"), [i])
        begin = named("begin", tirx.Select(b == 0, first, long(0)))
        end = named("end", tirx.min(count + first - b * PAIRS, long(PAIRS)))
        with T.serial(0, end - begin) as j:
            T.buffer_store(drawn, bits[begin + j], [b * PAIRS - first + begin + j])
    used = named("used", taken + 2 * count - 2 * PAIRS * last)  # words of the last block
    end = named("at", (last % BLOCKS + 1) * PAIRS)
    with T.serial(0, PAIRS) as s:
        for parity in (0, 1):
            word = tirx.Cast("int64", words[parity * odd_row + end + s])
            T.buffer_store(state, word, [_WORDS + 2 * s + parity])
    T.buffer_store(state, (state[_LEFT] >> 32 << 32) + (625 - used), [_LEFT])
    T.buffer_store(state, used, [_NEXT])


def _twist(first: tirx.Expr, second: tirx.Expr) -> tirx.Expr:
    mixed = (first & _word(0x80000000)) | (second & _word(0x7FFFFFFF))
    return (mixed >> _word(1)) ^ tirx.Select((second & _word(1)) == _word(0), _word(0), _word(0x9908B0DF))


def _tempered(word: tirx.Expr) -> tirx.Expr:
    word = T.bind(word ^ (word >> _word(11)))
    word = T.bind(word ^ ((word << _word(7)) & _word(0x9D2C5680)))
    word = T.bind(word ^ ((word << _word(15)) & _word(0xEFC60000)))
    return T.bind(word ^ (word >> _word(18)))


def _one_where(condition: tirx.Expr, dtype: str) -> tirx.Expr:
    return tirx.Select(condition, tirx.const(1, dtype), tirx.const(0, dtype))


def _word(value: int) -> tirx.Expr:
    return tirx.const(value, "uint32")


@contextmanager
def _vectors() -> Iterator[tuple[tirx.Expr, tirx.Var]]:
    """(pair, lane) for all pairs of a block, in vectors."""
    with T.serial(0, PAIRS // LANES) as block, T.vectorized(0, LANES) as lane:
        yield tirx.Cast("int64", block * LANES + lane), lane
