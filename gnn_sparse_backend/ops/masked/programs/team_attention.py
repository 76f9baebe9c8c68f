"""Attention over the blocks of a mask on a GPU, and its gradients: what `forward` and `backward` say, row by row.

Two programs have the gradients, that of the queries and those of keys and values, which recompute the scores each: so
every number is added up by one team, in one order.
"""

from __future__ import annotations

from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, cast, equal, exp, log, maximum, number, select
from ....compiler.language.program import Program
from .softmax import LOWEST
from .teams import Features, RandomStream, Row, Teams, TeamSpec


def team_forward(spec: TeamSpec) -> Program:
    """The program. Parameters: those of `Teams`, then Q, KX, V, Scale, [those of `RandomStream`,] Out, Lse, as of
    `forward`.
    """
    w = Teams("masked_forward", spec)
    p, acc = w.p, spec.accumulator
    Q, K, V = w.of_rows("Q", w.K), w.of_columns("KX", w.K), w.of_columns("V", w.E)
    Scale = p.buffer("Scale", (w.One,), acc)
    stream = RandomStream(w) if spec.dropout else None
    Out, Lse = w.of_rows("Out", w.E), w.of_rows("Lse", None, acc)
    nothing = number(0.0, acc)
    with w.rows() as row:
        Own = _own(w, w.K, "Own_q", Q, row, Scale)
        Acc = w.E.zeros("Acc")
        Max, Sum = w.number("Max"), w.number("Sum")
        Max[()] = LOWEST
        Sum[()] = 0.0
        if stream:
            stream.of_row(row)
        with w.pairs(row) as (pair, allowed):
            Score = w.number("Score")
            w.K.dot("score", Score, Own, lambda d: cast(acc, K[pair.number, d]))
            with allowed():
                Most, Shrink, Weight = w.number("Most"), w.number("Shrink"), w.number("Weight")
                Most[()] = maximum(Max[()], Score[()])
                Shrink[()] = exp(Max[()] - Most[()])
                Weight[()] = exp(Score[()] - Most[()])
                Max[()] = Most[()]
                Sum[()] = Sum[()] * Shrink[()] + Weight[()]
                if stream:
                    Weight[()] = Weight[()] * stream.factor(pair)

                def add(at: tuple[Expr, ...], e: Expr) -> None:
                    Acc[at] = Acc[at] * Shrink[()] + Weight[()] * cast(acc, V[pair.number, e])

                w.E.each("add", add)
        Inverse = w.number("Inverse")
        Inverse[()] = select(equal(Sum[()], nothing), nothing, 1.0 / Sum[()])
        Lse[row.number] = select(equal(Sum[()], nothing), number(float("inf"), acc), Max[()] + log(Sum[()]))
        w.E.each("out", lambda at, e: Out.__setitem__((row.number, e), cast(spec.dtype, Acc[at] * Inverse[()])))
    return p.finish()


def team_backward_queries(spec: TeamSpec) -> Program:
    """The program. Parameters: those of `Teams`, then Q, KX, V, GX, Scale, [of `RandomStream`,] Lse, Delta, DQ."""
    w = Teams("masked_backward_queries", spec)
    p, acc = w.p, spec.accumulator
    Q, K, V, G = w.of_rows("Q", w.K), w.of_columns("KX", w.K), w.of_columns("V", w.E), w.of_rows("GX", w.E)
    Scale = p.buffer("Scale", (w.One,), acc)
    stream = RandomStream(w) if spec.dropout else None
    Lse, Delta, DQ = w.of_rows("Lse", None, acc), w.of_rows("Delta", None, acc), w.of_rows("DQ", w.K)
    with w.rows() as row:
        OwnQ, OwnG = _own(w, w.K, "Own_q", Q, row, Scale), _own(w, w.E, "Own_g", G, row)
        Sum = w.K.zeros("SumQ")
        if stream:
            stream.of_row(row)
        with w.pairs(row) as (pair, allowed):
            Score, Slope = w.number("Score"), w.number("Slope")
            w.K.dot("score", Score, OwnQ, lambda d: cast(acc, K[pair.number, d]))
            w.E.dot("slope", Slope, OwnG, lambda e: cast(acc, V[pair.number, e]))
            with allowed():
                Step = w.number("Step")
                slope = Slope[()] * stream.factor(pair) if stream else Slope[()]
                Step[()] = exp(Score[()] - Lse[row.number]) * (slope - Delta[row.number])

                def add(at: tuple[Expr, ...], d: Expr) -> None:
                    Sum[at] = Sum[at] + Step[()] * cast(acc, K[pair.number, d])

                w.K.each("add", add)
        w.K.each("out", lambda at, d: DQ.__setitem__((row.number, d), cast(spec.dtype, Sum[at] * Scale[0])))
    return p.finish()


def team_backward_keys(spec: TeamSpec) -> Program:
    """The program, on the transposed mask. Parameters: those of `Teams`, then Q, KX, V, GX, Scale, [those of
    `RandomStream`,] Lse, Delta, DK, DV.
    """
    w = Teams("masked_backward_keys", spec, rows_padded=True)
    p, acc = w.p, spec.accumulator
    Q, K, V, G = w.of_columns("Q", w.K), w.of_rows("KX", w.K), w.of_rows("V", w.E), w.of_columns("GX", w.E)
    Scale = p.buffer("Scale", (w.One,), acc)
    stream = RandomStream(w) if spec.dropout else None
    Lse, Delta = w.of_columns("Lse", None, acc), w.of_columns("Delta", None, acc)
    DK, DV = w.of_rows("DK", w.K), w.of_rows("DV", w.E)
    with w.rows() as row:
        OwnK, OwnV = _own(w, w.K, "Own_k", K, row, Scale), _own(w, w.E, "Own_v", V, row)
        SumK, SumV = w.K.zeros("SumK"), w.E.zeros("SumV")
        if stream:
            stream.of_row(row)
        with w.pairs(row) as (pair, allowed):
            Score, Slope = w.number("Score"), w.number("Slope")
            w.K.dot("score", Score, OwnK, lambda d: cast(acc, Q[pair.number, d]))
            w.E.dot("slope", Slope, OwnV, lambda e: cast(acc, G[pair.number, e]))
            with allowed():
                Weight, Kept, Step = w.number("Weight"), w.number("Kept"), w.number("Step")
                Weight[()] = exp(Score[()] - Lse[pair.number])
                if stream:
                    Part = w.number("Part")
                    Part[()] = stream.factor(pair)
                    Kept[()] = Weight[()] * Part[()]
                    Step[()] = Weight[()] * (Slope[()] * Part[()] - Delta[pair.number])
                else:
                    Kept[()] = Weight[()]
                    Step[()] = Weight[()] * (Slope[()] - Delta[pair.number])

                def add_v(at: tuple[Expr, ...], e: Expr) -> None:
                    SumV[at] = SumV[at] + Kept[()] * cast(acc, G[pair.number, e])

                def add_k(at: tuple[Expr, ...], d: Expr) -> None:
                    SumK[at] = SumK[at] + Step[()] * cast(acc, Q[pair.number, d])

                w.E.each("add_v", add_v)
                w.K.each("add_k", add_k)
        w.K.each("out_k", lambda at, d: DK.__setitem__((row.number, d), cast(spec.dtype, SumK[at] * Scale[0])))
        w.E.each("out_v", lambda at, e: DV.__setitem__((row.number, e), cast(spec.dtype, SumV[at])))
    return p.finish()


def team_dots(spec: TeamSpec) -> Program:
    """``pairs.masked_dots``. Parameters: those of `Teams`, then A, B, value_rows, Values, which are zeros before."""
    w = Teams("masked_dots", spec)
    p, acc = w.p, spec.accumulator
    A, B = w.of_rows("A", w.K), w.of_columns("B", w.K)
    Values = _values(w)
    with w.rows() as row:
        Own = _own(w, w.K, "Own_a", A, row)
        with w.pairs(row) as (pair, allowed):
            Score = w.number("Score")
            w.K.dot("score", Score, Own, lambda d: cast(acc, B[pair.number, d]))
            with allowed():
                at = row.group * w.size["num_blocks"] + pair.block
                Values[at, row.within, pair.within] = cast(spec.dtype, Score[()])
    return p.finish()


def team_sums(spec: TeamSpec, transposed: bool) -> Program:
    """``pairs.masked_sums``. Parameters: those of `Teams`, then B, value_rows, [Order,] Values, Out. Order: of the
    transpose, the block of the mask that each of its blocks is.
    """
    w = Teams("masked_sums_transposed" if transposed else "masked_sums", spec)
    p, acc = w.p, spec.accumulator
    B = w.of_columns("B", w.E)
    Order = p.buffer("Order", (w.Z,), "int32") if transposed else None
    Values = _values(w)
    Out = w.of_rows("Out", w.E)
    with w.rows() as row:
        Acc = w.E.zeros("Acc")
        with w.pairs(row) as (pair, allowed), allowed():
            at = row.group * w.size["num_blocks"] + (pair.block if Order is None else Order[pair.block])
            within = (pair.within, row.within) if transposed else (row.within, pair.within)
            Value = w.number("Value")
            Value[()] = cast(acc, Values[(at, *within)])

            def add(place: tuple[Expr, ...], e: Expr) -> None:
                Acc[place] = Acc[place] + Value[()] * cast(acc, B[pair.number, e])

            w.E.each("add", add)
        w.E.each("out", lambda place, e: Out.__setitem__((row.number, e), cast(spec.dtype, Acc[place])))
    return p.finish()


def _own(
    w: Teams, features: Features, name: str, operand: BufferHandle, row: Row, scale: BufferHandle | None = None
) -> BufferHandle:
    """The features of a row."""
    found = features.local(name)

    def load(at: tuple[Expr, ...], feature: Expr) -> None:
        value = cast(w.spec.accumulator, operand[row.number, feature])
        found[at] = value if scale is None else value * scale[0]

    features.each(f"load_{name.lower()}", load)
    return found


def _values(w: Teams) -> BufferHandle:
    rows = w.p.dense_fixed("V_axis", w.p.size("value_rows"))
    return w.p.buffer("Values", (rows, w.S, w.p.dense_fixed("SV", w.spec.block)), w.spec.dtype)
