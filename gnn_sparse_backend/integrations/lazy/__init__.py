"""Lazy tensors: what a layer computes for every edge, not computed until it is known what for.

Layers of every framework gather node features to edges, do arithmetic there, and reduce the result into nodes. The
tensors in between have a row per edge and are most of the memory traffic. Here a gather gives a ``LazyTensor``,
arithmetic on it gives another, and a reduction or a softmax over edges of it runs one kernel; whatever else is done
with one computes it.

A framework says how it knows its edges (``End``, ``Host`` in ``ends.py``), and calls three functions::

    lazy = gather(host, end, x)                     # instead of x[index]: (E, ...) from x (n, ...)
    found = reduced(lazy, rows, "sum")              # instead of a scatter of it; None: take value(lazy, reason)
    p = softmaxed(lazy, rows, framework_softmax)    # instead of a softmax over edges; None as above

With a graph object instead of index tensors an end is the graph and a side of it, and the host hands that graph back:
``integrations/dgl/host.py`` shows all that it takes. A host is the framework's ``Boundary`` too: its functions are
replaced through ``host.admit``, which is what counts (``integrations/core/refusal.py``); ``reduced`` therefore gives
what the result is counted as beside it, or a ``Refusal``.

All of it within a scope (``integrations/scopes``), at whose end what is lazy and still held is computed. Whether a
gradient is asked for of a tensor in between is seen when it flows (``history.py``).

Ordinary tensors (E, ...) that a lazy one is combined with are in the order of ``Graph``'s edges, the user's. What is
gathered must be a dense floating tensor of a type with kernels, on a device with kernels, with features, and nothing
may be tracing or transforming the operations: ``refuse`` says.
"""

from .ends import End, Host
from .gathers import as_real
from .gathers import gather as gather_now
from .handlers import keep
from .orders import deferred, waiting
from .products import LINEAR, known_size
from .recipes import gathered
from .reductions import INTO_ZEROS, OF_SEGMENTS, of_edges, reduced, refuse, refuse_features, softmaxed
from .rows import LEAST, mapped, of_rows, scaled_at, watched
from .tensor import DEFERRED, LazyTensor, lazy_tensor, materialise, name_of, value

__all__ = [
    "DEFERRED",
    "INTO_ZEROS",
    "LEAST",
    "LINEAR",
    "OF_SEGMENTS",
    "End",
    "Host",
    "LazyTensor",
    "as_real",
    "deferred",
    "gather",
    "gather_now",
    "keep",
    "known_size",
    "mapped",
    "materialise",
    "name_of",
    "of_edges",
    "of_rows",
    "reduced",
    "refuse",
    "refuse_features",
    "scaled_at",
    "softmaxed",
    "value",
    "waiting",
    "watched",
]


def gather(host: Host, end: End, x) -> LazyTensor:
    """``x`` (end.size, ...) at an end of the edges, (end.count, ...): lazy. For what ``refuse`` lets through."""
    return lazy_tensor(gathered(host, end, x))
