"""Format decomposition: one sparse buffer becomes several, each in a format of its own (SparseTIR, section 3.2.1).

    C[i, k] = sum over j of A[i, j] * B[j, k]                              with A in CSR, rules "bsr" and "ell"
  ->
    copy_bsr (IO, JO, II, JI):  A_bsr[io, jo, ii, ji] = A[io * b + ii, jo * b + ji]
    copy_ell (I2, J2):          A_ell[i2, j2] = A[i2, j2]
    spmm_init (I, K):           C[i, k] = 0
    spmm_bsr (IO, JO, II, JI, K):  C[io * b + ii, k] += A_bsr[io, jo, ii, ji] * B[jo * b + ji, k]
    spmm_ell (I2, J2, K):          C[i2, k] += A_ell[i2, j2] * B[j2, k]

The new formats together must store every non-zero of the old one exactly once; the rules' index arrays say which goes
where, and they are inputs of the program. The copies depend on values alone of the old buffers: `split_copies` takes
them out, to run once.

Where formats share no row, what is done for a row stays together, whatever it is, with its accumulators:

    rows (I):                                   rows_w4 (I_w4):
      sum (J): S = S + A[i,j] * B[j]     ->       sum_w4 (J_w4): S_w4 = S_w4 + A_w4[i,j] * B[j]
      out:     C[i] = S / D[i]                    out_w4:        C[Rows_w4[i]] = S_w4 / D[Rows_w4[i]]
                                                rows_w8 (I_w8): ...
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from ..language.axes import Axis, Size, StageIError
from ..language.expr import SizeOf, Var
from ..language.program import (
    Buffer,
    Iteration,
    Program,
    Store,
    expressions_in,
    loads_in,
    stores_in,
    walk_iterations,
)
from ..language.validate import changed, validate
from .part import COPY, Part, once
from .passes import one_pass
from .rewrite_rule import FormatRewriteRule


def decompose_format(
    program: Program,
    rules: list[FormatRewriteRule],
    *,
    copies: bool = True,
    disjoint: bool = False,
    within: str | None = None,
) -> Program:
    """Rewrite the buffers that the rules name into the rules' formats.

    The result has, in order: copies, initial values, and one iteration per rule for each iteration that reads the old
    buffers, or visits the old axes for their coordinates alone. New buffers are parameters. Rules may share axes and
    sizes with each other and with the program.

    A copy looks a coordinate up and finds one element, so copies are refused where coordinates may repeat. With
    copies=False there are none: the caller fills the new buffers, from the format's `value_position`.

    Where an iteration visits all old axes itself, the parts of a row add to its result in memory. Where it visits some
    of them inside others, with local buffers and statements around, every rule is a pass over the same rows that goes
    on from the results of the one before (`passes`); so rules must leave the axes that it begins with as they are, or
    visit every row whole. Where all that is done in the end is to store the results, a rule may leave rows out, which
    keep what they hold.

    within: the top-level iteration in whose body this is done, which visits none of the axes that rules replace; its
    statements stay around the parts. None: to every top-level iteration.

    disjoint: each row is stored whole by one rule, once, or by none, and then it is not visited at all. Then initial
    values, and whatever is done around the old axes, stay with the row.

    Raises StageIError where a rule does not fit the program, or where its index maps are not inverse to each other.
    """
    if not rules:
        raise StageIError("decompose_format: no rules")
    if len({rule.buffers for rule in rules}) != 1:
        raise StageIError("decompose_format: all rules must rewrite the same buffers")
    rewritten = set(map(program.buffer, rules[0].buffers)) if copies else set()
    written = next((it for it in program.iterations if _stored((it,)) & rewritten), None)
    if written:
        raise StageIError(f"decompose_format: iteration {written.name!r} writes a buffer that is to be rewritten")
    if copies and not rules[0].buffers:
        raise StageIError("decompose_format: rules that rewrite no buffers have nothing to copy; pass copies=False")
    parts = [Part(program, rule) for rule in rules]
    iterations = [copy for part in parts for copy in part.copies()] if copies else []
    if within is None:
        iterations += _each(program.iterations, parts, disjoint, {})
    else:
        around = program.iteration(within)
        _refuse_moved(around, parts)
        at = dict(zip(around.axes, around.variables))
        nested = tuple(s for s in around.body if isinstance(s, Iteration))
        if len(nested) != len(around.body):
            raise StageIError(f"decompose_format: iteration {within!r} has stores beside its iterations")
        body = tuple(_each(nested, parts, disjoint, at))
        iterations += [replace(it, body=body) if it is around else it for it in program.iterations]
    done = changed(
        program,
        f"decompose_format({', '.join(rule.name for rule in rules)})",
        sizes=once(program.sizes, *(rule.sizes for rule in rules)),
        axes=once(program.axes, *(rule.axes for rule in rules)),
        buffers=program.buffers + tuple(b for part in parts for b in part.new_buffers()),
        iterations=tuple(iterations),
    )
    return done if copies else prune(done)


def _each(iterations: tuple[Iteration, ...], parts: list[Part], disjoint: bool, at: dict[Axis, Var]) -> list[Iteration]:
    """What takes the place of the iterations. at: iterators of the axes that are visited around them."""
    found: list[Iteration] = []
    for it in iterations:
        found += _parts_of(it, parts, disjoint, at) if parts[0].concerns(it, at) else [it]
    return found


def _parts_of(it: Iteration, parts: list[Part], disjoint: bool, at: dict[Axis, Var]) -> list[Iteration]:
    rules = [part.rule for part in parts]
    passes = not disjoint and not set(parts[0].before) <= {*it.axes, *at}
    apart = it.init and (not disjoint or any(rule.masked for rule in rules))
    found = [_init(it)] if apart else []
    for part in parts:
        source = replace(it, init=()) if apart else it
        if passes:
            source = one_pass(source, part.moved(it, rules), part is parts[0], part is parts[-1])
        found.append(part.compute(source, part.visited(at), {}))
    return found


def _refuse_moved(around: Iteration, parts: list[Part]) -> None:
    for part in parts:
        if part.replaces(around.axes):
            raise StageIError(
                f"decompose_format: rule {part.rule.name!r} replaces an axis that iteration {around.name!r} visits"
            )


def split_copies(program: Program) -> tuple[Program | None, Program]:
    """(the copies alone, the program without them): run the first once per structure or value, the second every time.

    The second no longer has the old buffers and their structure among its parameters, unless it still reads them.
    """
    copies = tuple(takewhile(_is_copy, program.iterations))
    rest = program.iterations[len(copies) :]
    first = prune(replace(program, name=f"{program.name}_copy", iterations=copies)) if copies else None
    return first, prune(replace(program, iterations=rest))


def remove_copies(program: Program) -> Program:
    """The program without its copies; the new buffers must then be filled by whoever calls it."""
    return split_copies(program)[1]


def split_parts(program: Program) -> tuple[Program, ...]:
    """Each iteration of the program by itself, with what it needs: for parts that are launched one by one."""
    return tuple(prune(replace(program, iterations=(it,))) for it in program.iterations)


def _is_copy(it: Iteration) -> bool:
    store = it.body[0] if len(it.body) == 1 else None
    return isinstance(store, Store) and it.name == f"{COPY}_{store.buffer.name}"


def prune(program: Program) -> Program:
    """Drop buffers that no iteration touches, then axes and sizes that nothing stands on."""
    used = _stored(program.iterations) | _loaded(program.iterations)
    iterations = list(walk_iterations(program.iterations))
    buffers = tuple(b for b in program.buffers if b in used)
    standing = {a for b in (*buffers, *(b for it in iterations for b in it.locals)) for a in b.axes}
    axes = {up for axis in standing.union(*(it.axes for it in iterations)) for up in axis.chain}
    sizes = {e.size for e in expressions_in(program.iterations) if isinstance(e, SizeOf)}
    sizes.update(e for a in axes for e in (a.length, a.nnz, a.nnz_cols) if isinstance(e, Size))
    done = replace(
        program,
        sizes=tuple(s for s in program.sizes if s in sizes),
        axes=tuple(a for a in program.axes if a in axes),
        buffers=buffers,
    )
    validate(done)
    return done


def _stored(iterations: tuple[Iteration, ...]) -> set[Buffer]:
    return {store.buffer for store in stores_in(iterations)}


def _loaded(iterations: tuple[Iteration, ...]) -> set[Buffer]:
    return {load.buffer for load in loads_in(iterations)}


def _init(it: Iteration) -> Iteration:
    """The initial values in an iteration of their own: every part adds to them."""
    if any(a.parent in it.reduction for a in it.spatial):
        raise StageIError(f"decompose_format: iteration {it.name!r} has init on spatial axes that hang on reductions")
    variables = tuple(it.variable(a) for a in it.spatial)
    return Iteration(f"{it.name}_init", it.spatial, "S" * len(it.spatial), variables, (), it.init)
