"""``gsb.precompile`` and ``gsb.explain``: for the graphs of any library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

import torch

from ...ops.convolution.explain import ConvExplanation
from ...ops.core.prepared import KINDS
from ...ops.message.linear_order import LinearOrder
from ...ops.message.sparse_rows import FeaturesExplanation, explain_features
from ...ops.random.draws import torch_draws_so
from ...ops.relational.explain import RelationalExplanation
from ...runtime.type_names import check_dtype
from ...structures.accounting.epoch import EpochMemory, epoch_memory
from ...structures.graph import Graph
from ...tuning.explain import Explanation, OnePlan, explain_structure, named
from ...tuning.precompile import precompile_graphs
from ...tuning.precompile_operators import kinds_of
from ...tuning.report import Report
from ...tuning.tune_format import FormatChoice, explain_format
from .foreign import structures_of
from .registry import MEMORY

Widths: TypeAlias = int | Sequence[int | Sequence[int]]
Features: TypeAlias = Widths | Mapping[str, Widths]
"""Widths for all operators, or for each."""


def precompile(
    data: object,
    features: Features = 64,
    ops: str | Iterable[str] | None = None,
    budget: str | float = "30s",
    *,
    dtype: str | torch.dtype = "float32",
    backward: bool = True,
    again: bool = False,
    progress: bool = True,
    search: bool = False,
    memory: bool = False,
) -> Report:
    """Compile what operators will run on these graphs, measure the plans worth trying, and remember the fastest.

        print(gsb.precompile(dataset[0], features=(64, 128), ops=("mean", "weighted_sum"), budget="1m"))
        print(gsb.precompile(hetero, {"sum": 64, "rgms_mean": [(64, 16), (16, 4)], "gat_attention": (8, 16)}))

    Worth doing where a graph is loaded, before training. Calls on graphs of the same structure, here and in later
    processes of this machine, then run by the measured plans. A plan decides the order of additions, so the last bits
    of results may change when a graph is tuned; after that they are the same at every run.

    The operators, what they run on, and what their ``features`` are:

    | operators | on | ``features`` |
    | --- | --- | --- |
    | sum, mean, prod, max, min, and the same after ``weighted_`` | graph | F, of a row of x |
    | dot | graph | F, of the rows at both ends |
    | attention, gat_attention, gatv2_attention, and the same after ``weighted_`` | graph | (heads, F of a head), or F |
    | edge_softmax | graph | heads: scores of an edge |
    | rgms, rgms_mean, and the same after ``weighted_`` | RelGraph | (F_in, F_out), or F for both |
    | rgms_blocks, rgms_blocks_mean, ... | RelGraph | (F_in, F_out, blocks on the diagonal of a matrix) |
    | rgms_bases, rgms_bases_mean, ... | RelGraph | (F_in, F_out, bases that matrices are made of) |
    | segment_mm, gather_mm | Segments | (F_in, F_out), or F for both |
    | segment_sum, segment_mean, segment_max, segment_min | Segments | F |
    | sparse_conv | KernelMap | (C_in, C_out), or C for both |
    | sparse_conv_groups | KernelMap | (C_in, C_out, groups of channels) |
    | sparse_attention | Mask | (D, D of v) of a head, or D for both |
    | masked_sddmm, masked_spmm | Mask | D of a head |
    | composed_spmm, composed_sddmm | Decomposition | columns of x; terms of a product |
    | composed_linear | Decomposition | tokens: rows of x |

    Attention takes F alone for operands without heads.
    ``weighted_``: with a number for each edge, of attention for each head too (``edge_weight``: dropout of attention).
    Plans of the first two lines are measured. The others have one plan each, by rules, unless ``search`` found a faster
    one: their kernels are compiled, and the call and its gradients run once.

    On the same structure, the same call and its gradients then compile nothing. On a GPU the kernels of a step are
    compiled first, the formats that its plans want made (the transpose, rows in parts, buckets or chunks, blocks), and
    each operator and its gradients run once, before anything is measured. What waits for the GPU
    happens here: lengths of rows, sizes of formats, and times, which are taken between events on the stream. Calls on
    the same ``gsb.Graph`` then compile nothing and read nothing back, so that a step can be captured in a CUDA graph.
    Graphs that a framework's layers make of the same edges find kernels and plans, and make formats at their first
    step. Plans are kept under the GPU's own name.

    Args:
        data: a ``gsb.Graph``, ``RelGraph``, ``Segments``, ``KernelMap``, ``masks.Mask`` or ``formats.Decomposition``, a
            DGL graph or block, a PyG ``Data``, ``HeteroData``, ``EdgeIndex`` or edge_index, a pair (edge_index,
            edge_type), a SciPy sparse matrix, a sparse torch tensor, or a dataset or iterable of these. Matrices are
            ``[destination, source]``. For a graph with several edge types operators on graphs are prepared for each
            type, and those on a ``RelGraph`` for all edges together. Edge types are those of DGL's and PyG's
            heterogeneous graphs, of ``edata["_TYPE"]`` or ``edata["etype"]`` in DGL, and ``edge_type`` in PyG.
        features: a width, or several in a list, as the table has them: the hidden sizes of a model, most of all. Where
            a width is one number, a tuple is several too; where it is a tuple, a tuple of numbers is one. Or a dict
            from operators to theirs.
        ops: of the table; by default the names in ``features`` where that is a dict, else ``sum``, of a ``RelGraph``
            ``rgms``, of ``Segments`` ``segment_mm``, of a ``KernelMap`` ``sparse_conv``, of a mask
            ``sparse_attention``, of a ``Decomposition`` ``composed_spmm``.
        budget: seconds, or ``"500ms"``, ``"30s"``, ``"2m"``. When it ends, or at Ctrl-C, the fastest plans so far are
            kept. A plan being timed or a kernel being compiled is finished: a second or so more.
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``, or torch's.
        backward: also for the gradients. For sums, the gradient to the features is measured, which is a sum on the
            transpose.
        again: measure again what is known.
        progress: show a progress bar on the error stream.
        search: find for each kernel that these operators run on a CPU, forward and backward, the fastest of all
            decompositions and schedules: rows, scattered, column partitions, parts of long rows, slices; of relations
            and of convolutions each dataflow; each by numbers of groups or tasks and how far gathers run ahead. The
            cost model orders the candidates; the promising ones are compiled and measured by successive halving
            (Jamieson and Talwalkar, 2016), in turns. What a search that was cut short did not reach, the next one
            tries. With a budget of 0 nothing is measured, and each call runs once, by what is predicted.
        memory: say also what an epoch will take of a network on each ``gsb.Graph``, whose layers give the widths of
            ``features``, in order, with rectified units and dropouts between them: ``report.memory``. With
            ``gsb.enable(..., memory="low")`` that is of layers under ``gsb.checkpoint_layers``, by chunks of rows.
            Gradients of parameters and an optimiser's states are not in it.

    Returns:
        a report that prints as a table; ``rows`` have what was tried.

    Raises:
        TypeError: there is no graph in ``data``.
        ValueError: an operator, a width, a type or a budget is none, an operator does not run on what is in ``data``,
            there are no kernels for the device, or plans are searched on a GPU, where all of them are measured.
        BuildError: CUDA lacks something here, or a kernel does not compile.
    """
    flags = {"backward": backward, "again": again, "progress": progress, "search": search, "memory": memory}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    if ops is not None and not isinstance(ops, str):
        try:
            names = list(ops)
        except TypeError:
            names = [None]
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"ops must be names of operators, got {ops!r:.80} of type {type(ops).__name__}")
        ops = tuple(names)
    torch_draws_so()  # makes the kernel of dropouts, which is no graph's, and which layers ask for at their first step
    found = structures_of(data, kinds_of(ops, features))
    if memory:
        found = list(found)
    report = precompile_graphs(
        found,
        features,
        ops,
        budget,
        dtype=dtype,
        backward=backward,
        again=again,
        progress=progress,
        search=search,
    )
    if memory:
        report.memory += _of_epochs(found, features, check_dtype(dtype).itemsize)
    return report


def _of_epochs(graphs: Iterable[tuple[str, object]], features: Features, itemsize: int) -> Iterator[EpochMemory]:
    """What an epoch takes on each graph."""
    asked = [features] if not isinstance(features, Mapping) else list(features.values())
    widths: list[int | Sequence[int]] = []
    for each in asked:
        widths += [each] if isinstance(each, int) else each
    layers = [each if isinstance(each, int) else prod(each) for each in widths]
    heads = max((each[0] for each in widths if not isinstance(each, int)), default=0)
    for name, graph in graphs:
        if isinstance(graph, Graph):
            yield epoch_memory(name, graph, layers, heads, itemsize, MEMORY.low)


def explain(
    graph: object,
    op: str | None = None,
    features: int | Sequence[int] = 64,
    *,
    dtype: str | torch.dtype = "float32",
    backward: bool = False,
) -> Explanation | RelationalExplanation | ConvExplanation | LinearOrder | OnePlan | FormatChoice | FeaturesExplanation:
    """Which plan an operator runs by on a graph, and why. Nothing is compiled and nothing is measured.

    On a GPU: the rules that fired, and what a simple model of bytes, launches and balance expects of the candidates. It
    waits for the lengths of rows and for the blocks of graphs that may be dense enough.

        print(gsb.explain(graph, "weighted_sum", 128))
        print(gsb.explain(rel_graph, "rgms", (64, 16)))
        print(gsb.explain(graph, "linear", (128, 16)))  # of a linear map and a sum of neighbours: which goes first
        print(gsb.explain(kernel_map, "sparse_conv", (64, 128)))
        print(gsb.explain(x, "linear", 64))  # of features x: whether a map to 64 goes by the non-zeros of x
        print(gsb.explain(weight, "format", 512))  # in which formats the matrix is multiplied, and what others take

    Args:
        graph: as ``precompile`` takes them, with one edge type; or a ``gsb.RelGraph``. For ``"format"`` a matrix, as
            ``gsb.formats.decompose`` takes it; for ``"linear"`` a floating matrix of features, dense or sparse.
        op: an operator of ``precompile``'s table; by default as there. If it has no choice, the result says so. Or
            ``"format"``, for what ``gsb.tune_format`` with this width and type knows.
        features: one width, as ``precompile`` has them.
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``, or torch's.
        backward: the gradient to the features instead, which is a sum, or ``rgms``, on the transpose.

    Returns:
        plan, statistics, candidates with predicted and measured times, and reasons; prints as text, and
        ``.plot("plan.png")`` draws it. For ``rgms``: of each relation its edges, its pairs, what either order of its
        product costs, and which was chosen. For ``sparse_conv``: what each dataflow costs. Also the variants of the
        plan: what a call alone decides, such as whether rows go in the order of their lengths. For ``"format"`` a
        ``FormatChoice``, for ``"linear"`` of features the share of non-zeros, which way is taken, and why.

    Raises:
        TypeError: there is no graph.
        ValueError: there are several, or the operator, width or type is none that is planned.
    """
    if op is not None and not isinstance(op, str):
        raise TypeError(f"op must be the name of an operator, got {op!r} of type {type(op).__name__}")
    if op == "format":
        return explain_format(graph, features, dtype=dtype)
    if op == "linear" and isinstance(graph, torch.Tensor) and graph.dim() == 2 and graph.is_floating_point():
        return explain_features(graph, features)
    if type(graph) in KINDS:
        return explain_structure(graph, op, features, dtype=dtype, backward=backward)
    op = "sum" if op is None else op
    found = list(structures_of(graph, (named(op).on,)))
    if len(found) != 1:
        names = "; ".join(name for name, _ in found[:5])
        raise ValueError(f"explain takes one graph, got {len(found)}{': ' if found else ''}{names}")
    return explain_structure(found[0][1], op, features, dtype=dtype, backward=backward)
