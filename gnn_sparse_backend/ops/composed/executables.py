"""Products of composed matrices as calls of kernels: which kernel, with what, into which result."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.codegen import host_target
from ...compiler.language.program import Program
from ...compiler.own_schedules import in_force
from ...compiler.schedules.sequence import Schedule
from ...formats.composed.decomposition import Decomposition
from ...planner.composed import problem_of
from ...planner.database import database
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import fact
from ...structures.facts import content_hash
from ...structures.graph import Graph
from ..core.executable import Launch, compiled, in_threads
from ..core.signatures import prepared_call
from ..message.message_op import message_op
from ..message.prepared_call import PreparedAggregate
from .arguments import formats_of, slots_of, structure_of
from .launches import first_tokens, padded_rows
from .programs.rules import ComposedSpec
from .programs.sliced import STRETCH
from .schedules_cpu import column_tile, is_narrow, scheduled_spmm, stored_width

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
    if not (batch and features and parts.shape[0]):
        y = empty(x, batch, parts.shape[0], features, dtype=x.dtype)
        return y if batched else first(y)
    if features <= WHOLE_ROWS and by_rows(parts, batch):
        found = in_rows(parts, values[0], x[0])
        return found[None] if batched else found
    vectors = tile_vectors(parts, features, type_name(x.dtype))
    product = product_for(parts, batch, features, x.dtype, vectors, is_masked(parts, x))
    y = empty(x, batch, product.rows, product.width, dtype=product.result)
    product.launch(*product.arguments(values, x, y))
    y = y[..., :features] if product.width != features else y
    return plain(y, parts.shape[0], batched, x.dtype)


class Product:
    """``composed_spmm`` of a decomposition for operands of one size and type.

    rows, width, result: rows, columns and type of the results that kernels write, of all rows of all blocks and of all
    columns that operands get.
    """

    __slots__ = ("_arguments", "_columns", "_features", "_operand", "_slots", "launch", "result", "rows", "width")

    def __init__(
        self, parts: Decomposition, batch: int, features: int, dtype: torch.dtype, vectors: int, masked: bool
    ) -> None:
        formats, name = formats_of(parts), type_name(dtype)
        self.rows, self._columns = parts.padded_shape
        self.result, self._features = result_type(parts, dtype), features
        self.width = features if masked else stored_width(formats, features, name)
        narrow = not masked and self.width <= host_target().lanes(name) and any(each.shape.alike for each in formats)
        widened = narrow and dtype is torch.bfloat16  # processors load the other half type as float32
        self._operand = accumulator_of(dtype) if widened else dtype
        tile = column_tile(self.width, name, vectors)
        types = name, type_name(self.result), type_name(parts.indptr.dtype)
        spec = ComposedSpec(formats, *types, tile, masked, whole=tile == self.width, widened=widened)
        tasks, parallel = tasks_of(parts.num_slots * features * batch, self.rows)
        given = {
            "num_tasks": tasks,
            "m": self.rows,
            "n": self._columns,
            "batch": batch,
            "features": self.width,
            "column_tiles": -(-self.width // tile),
        }
        self._slots = slots_of(parts)
        self.launch = launch_of(scheduled_spmm, spec, parallel)
        own = "X", "Y", *(f"A_{name}" for name, *_ in self._slots)
        self._arguments = self.launch.bound({**given, **structure_of(parts, tasks, masked)}, own)

    def arguments(self, values: Tensor, x: Tensor, y: Tensor) -> list[Tensor | int]:
        """What `launch` takes for (batch, num_slots), (batch, n, features), and a result, (batch, rows, width)."""
        if self.width != self._features or self._operand is not x.dtype:
            wide = x.new_zeros(x.shape[0], self._columns, self.width, dtype=self._operand)
            wide[:, : x.shape[1], : self._features] = x
            x = wide
        values = compact(values)
        pieces = (compact(values[:, first:end]).unflatten(1, stored) for _, first, end, stored in self._slots)
        return self._arguments(compact(padded_rows(x, self._columns, 1)), y, *pieces)


def product_for(
    parts: Decomposition, batch: int, features: int, dtype: torch.dtype, vectors: int, masked: bool
) -> Product:
    """What multiplies operands of this size. vectors: of columns that are accumulated together, 0 for as many as the
    rule has. masked: padding is skipped.
    """
    return product_of(parts, batch, features, dtype, vectors, masked, torch.get_num_threads(), in_force.generation)


@fact
def product_of(
    parts: Decomposition,
    batch: int,
    features: int,
    dtype: torch.dtype,
    vectors: int,
    masked: bool,
    threads: int,
    generation: int,
) -> Product:
    """`product_for` these threads. generation: of what chose its kernel."""
    return Product(parts, batch, features, dtype, vectors, masked)


TILE = "tile of columns"


def with_tile(parts: Decomposition, vectors: int) -> Decomposition:
    """Have the kernels of a decomposition accumulate ``vectors`` vectors of columns together; returns it."""
    parts.facts[TILE] = vectors
    return parts


def tile_vectors(parts: Decomposition, features: int, dtype: str) -> int:
    """Vectors of columns that a kernel accumulates together: as `with_tile` said, as was fastest in these formats where
    ``gsb.tune_format`` has measured the matrix, else 0, for the rule's.
    """
    if is_narrow(features, dtype):
        return 0
    said = parts.facts.get(TILE)
    if said is not None:
        return int(said)
    if not parts.made_of or parts.made_of[-1]:  # a transpose, of which nothing is measured
        return 0
    indptr, indices, _, columns, words, *_ = parts.made_of
    shape = indptr.numel() - 1, columns
    problem = problem_of(shape, indices.numel(), features, dtype, planned_threads())
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


def tasks_of(work: int, rows: int) -> tuple[int, bool]:
    threads = planned_threads()
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
