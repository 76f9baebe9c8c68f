"""Products of composed matrices as calls of kernels: which kernel, with what, into which result."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.codegen import host_target
from ...compiler.language.program import Program
from ...compiler.schedules.sequence import Schedule
from ...formats.composed.decomposition import Decomposition
from ...planner.composed import problem_of
from ...planner.database import database
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import fact
from ...structures.facts import content_hash
from ...structures.graph import Graph
from ..core.executable import Launch, compiled, in_threads
from ..core.signatures import prepared_call
from ..message.message_op import message_op
from ..message.prepared_call import PreparedAggregate
from .arguments import formats_of, structure_of, values_of
from .launches import first_tokens, padded_rows
from .programs.rules import ComposedSpec
from .programs.sliced import STRETCH
from .schedules_cpu import column_tile, scheduled_spmm

TASKS_OF_A_THREAD = 4
"""Tasks of rows that a thread takes one after the other, which evens out what they cost."""
PARALLEL = 1 << 15
"""Multiplications from which a parallel region costs less than it saves."""
WHOLE_ROWS = 256
"""Most features of which CSR alone goes through whole rows, by plans of `spmm`. Beyond, the tiles of columns here have
more of the operand in the cache: 0.98 to 1.5 times as fast at 512 features, where at 128 they take 1.1 to 1.6 times as
long (three matrices; 256 was not compared)."""
WEIGHTED_SUM = message_op("mul(x1, x0)", ("column", "edge"), "sum")


@kept
def launch_of(scheduled: Callable[..., tuple[Program, Schedule]], spec: ComposedSpec, parallel: bool) -> Launch:
    words = f"{' + '.join(map(str, spec.pieces))}, tile {spec.tile}{', masked' if spec.masked else ''}"
    return compiled(*scheduled(spec, parallel, host_target()), f"{words}, {in_threads(parallel)}, by rules")


def run_spmm(parts: Decomposition, packed: Tensor, x: Tensor) -> Tensor:
    """(batch, num_slots) and (batch, n, features), or without batch, to (batch, m, features)."""
    batched = x.dim() == 3
    values, x = (packed, x) if batched else (packed[None], x[None])
    batch, features = x.shape[0], x.shape[2]
    y = empty(x, batch, parts.padded_shape[0], features, dtype=result_type(parts, x.dtype))
    if not y.numel():
        return plain(y, parts.shape[0], batched, x.dtype)
    if features <= WHOLE_ROWS and by_rows(parts, batch):
        found = in_rows(parts, values[0], x[0])
        return found[None] if batched else found
    launch, arguments = launch_spmm(parts, values, x, y, tile_vectors(parts, features, type_name(x.dtype)))
    launch(*arguments)
    return plain(y, parts.shape[0], batched, x.dtype)


def launch_spmm(
    parts: Decomposition, values: Tensor, x: Tensor, y: Tensor, vectors: int
) -> tuple[Launch, list[Tensor | int]]:
    """What fills y, of all rows of all blocks and of `result_type`, and its arguments. vectors: of columns that are
    accumulated together, 0 for as many as the rule has.
    """
    batch, features = x.shape[0], x.shape[2]
    rows, columns = parts.padded_shape
    x = compact(padded_rows(x, columns, 1))
    types = type_name(x.dtype), type_name(y.dtype), type_name(parts.indptr.dtype)
    tile = column_tile(features, types[0], vectors)
    masked = is_masked(parts, x)
    spec = ComposedSpec(formats_of(parts), *types, tile, masked)
    tasks, parallel = tasks_of(parts.num_slots * features * batch, rows)
    given = {
        "num_tasks": tasks,
        "m": rows,
        "n": columns,
        "batch": batch,
        "features": features,
        "column_tiles": -(-features // tile),
        "X": x,
        "Y": y,
    }
    launch = launch_of(scheduled_spmm, spec, parallel)
    return launch, launch.arguments(given, structure_of(parts, tasks, masked), _values(parts, values))


TILE = "tile of columns"


def with_tile(parts: Decomposition, vectors: int) -> Decomposition:
    """Have the kernels of a decomposition accumulate ``vectors`` vectors of columns together; returns it."""
    parts.facts[TILE] = vectors
    return parts


def tile_vectors(parts: Decomposition, features: int, dtype: str) -> int:
    """Vectors of columns that a kernel accumulates together: as `with_tile` said, as was fastest in these formats where
    ``gsb.tune_format`` has measured the matrix, else 0, for the rule's.
    """
    said = parts.facts.get(TILE)
    if said is not None:
        return int(said)
    if not parts.made_of or parts.made_of[-1]:  # a transpose, of which nothing is measured
        return 0
    indptr, indices, _, columns, words, *_ = parts.made_of
    shape = indptr.numel() - 1, columns
    problem = problem_of(shape, indices.numel(), features, dtype, torch.get_num_threads())
    known = database().find(problem, lambda: fingerprint(parts))
    if known is None:
        return 0
    return next((plan.tile for plan, _ in known.seconds if plan.formats == words), 0)


@fact
def fingerprint(parts: Decomposition) -> str:
    """Fingerprint of the structure that it was made of, by which measurements are found."""
    indptr, indices, _, columns, *_ = parts.made_of
    return content_hash(indptr, indices, None, (indptr.numel() - 1, columns))


def by_rows(parts: Decomposition, batch: int) -> bool:
    """Whether this may be `spmm` of a graph, whose plans there are for whole rows of a matrix in CSR."""
    return len(parts.pieces) == 1 and parts.pieces[0].spec.kind == "csr" and batch == 1 and parts.nnz > 0


def in_rows(parts: Decomposition, values: Tensor, x: Tensor) -> Tensor:
    """The product by `spmm`: (nnz,) and (n, features) to (m, features)."""
    graph, operands = rows_of(parts), (x, values)
    signature, prepared = prepared_call(graph, ("composed_spmm",), operands)
    if prepared is None:
        prepared = PreparedAggregate(WEIGHTED_SUM)
        if signature is not None:
            graph.calls.keep(signature, prepared)
    return prepared(graph, operands)


@fact
def rows_of(parts: Decomposition) -> Graph:
    """The structure of a matrix whose only piece is in CSR."""
    return Graph._of_arrays(parts.indptr, parts.indices, None, parts.shape[1])


def sliced_arguments(parts: Decomposition, x: Tensor, width: int, tasks: int) -> dict[str, int | Tensor]:
    """What kernels by slices of ``width`` tokens take for themselves. x: (tokens, ...), one of the operands."""
    rows, columns = parts.padded_shape
    wide = accumulator_of(x.dtype)
    return sliced_sizes(parts, x.shape[0], width, tasks) | {
        "P": empty(x, tasks, columns, width, dtype=wide),
        "R": empty(x, tasks, rows, width, dtype=wide),
    }


def sliced_sizes(parts: Decomposition, tokens: int, width: int, tasks: int) -> dict[str, int | Tensor]:
    """What `sliced_arguments` gives, but for the workspaces."""
    (rows, columns), index = parts.padded_shape, parts.indptr.dtype
    slices = -(-tokens // width)
    return {
        "num_tasks": tasks,
        "m": rows,
        "n": columns,
        "tokens": tokens,
        "slices": slices,
        "row_stretches": -(-rows // STRETCH),
        "column_stretches": -(-columns // STRETCH),
        "slice_ptr": shares(slices, tasks, index),
        "First": first_tokens(tokens, width, index),
    }


def _values(parts: Decomposition, packed: Tensor) -> dict[str, Tensor]:
    """The values of all pieces as kernels read them."""
    return {name: compact(x) for name, x in values_of(parts, compact(packed), "A").items()}


def tasks_of(work: int, rows: int) -> tuple[int, bool]:
    threads = torch.get_num_threads()
    parallel = work >= PARALLEL and threads > 1
    return (min(TASKS_OF_A_THREAD * threads, max(rows, 1)) if parallel else 1), parallel


@kept
def shares(count: int, tasks: int, dtype: torch.dtype) -> Tensor:
    return (torch.arange(tasks + 1) * count // tasks).to(dtype)


def result_type(parts: Decomposition, dtype: torch.dtype) -> torch.dtype:
    """What kernels store: what several pieces add up in a half type would be rounded after each."""
    return dtype if len(formats_of(parts)) == 1 else accumulator_of(dtype)


def is_masked(parts: Decomposition, x: Tensor) -> bool:
    """Whether padding has to be skipped: it would be multiplied by what is infinite or no number."""
    return multiplies_padding(parts) and not bool(x.sum(dtype=accumulator_of(x.dtype)).isfinite())


@fact
def multiplies_padding(parts: Decomposition) -> bool:
    """Whether there is padding that kernels multiply, unless they are told to skip it."""
    return any(piece.padding and not piece.spec.names_columns for piece in parts.pieces)


def plain(y: Tensor, rows: int, batched: bool, dtype: torch.dtype) -> Tensor:
    y = y.to(dtype)
    if y.shape[1] != rows:
        y = y[:, :rows].contiguous()
    return y if batched else first(y)


def first(x: Tensor) -> Tensor:
    """x[0] of the same memory, but no view to autograd, so that the results of operators may be written to."""
    return x.new_empty(0).set_(x[0])
