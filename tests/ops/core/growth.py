"""A process that meets many widths, messages and shapes:

    python -m tests.ops.core.growth COUNT DIVISOR [dgl] [pyg]

Kernels are not compiled and compute nothing, but take memory for a text; all that is kept of calls is real. Every bound
of a cache is divided by DIVISOR; 0 takes the bounds away. Prints as JSON, for either half of COUNT rounds: the bytes of
the process after it, the most that Python's objects took during it, and what every cache has done. With the bounds as
they are, DIVISOR 1, objects are not traced, for that takes thrice the time.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import tracemalloc
from dataclasses import astuple

import psutil

from gnn_sparse_backend.compiler.cache import bounded
from gnn_sparse_backend.compiler.cache.default import default_store
from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.compiler.cache.store import KernelStore

UNBOUNDED = 1 << 40
TEXT = 2_000
"""Characters that a kernel's stages are printed in."""


class Uncompiled(KernelStore):
    """Kernels that do nothing."""

    def _obtain(self, key, build, name):
        return Kernel(
            lambda *arguments: None, name, key.digest, "memory", 0.0, key.target, None, {"stage3": "#" * TEXT}
        )


def divide_bounds(divisor: int) -> None:
    """Before a cache is made: let none have more than its share, and no kernel be compiled."""
    init, keeping, make_room = bounded.KernelCache.__init__, bounded.keeping, bounded.make_room
    kept_within = bounded.kept_within

    def share(most: int) -> int:
        return max(2, most // divisor) if divisor else UNBOUNDED

    def keep(most: int):
        return lambda function: keeping(share(most))(uncompiled(function))

    bounded.KernelCache.__init__ = lambda self, name, most=bounded.MOST: init(self, name, share(most))

    def within(era):
        def decorate(function):
            whole, bounded.MOST = bounded.MOST, share(bounded.MOST)
            try:
                return kept_within(era)(uncompiled(function))
            finally:
                bounded.MOST = whole

        return decorate

    bounded.keeping, bounded.kept_within = keep, within
    # the dictionaries of structures, which are no `KernelCache`
    bounded.make_room = lambda entries, most=bounded.MOST: make_room(
        entries, most if isinstance(entries, bounded.KernelCache) else share(most)
    )
    default_store._store = Uncompiled(None, None)


def uncompiled(function):
    """The function, or one of the same arguments in the place of one that makes a kernel."""
    if getattr(function, "__annotations__", {}).get("return") != "Kernel":
        return function

    @functools.wraps(function)
    def kernel(*arguments, **named):
        program = f"{function.__module__}.{function.__qualname__}{arguments}{named}"
        return default_store().get(program, "", "none", None, name=function.__name__)

    return kernel


def rounds():
    """What a round does, by name: each a function of the number of the round."""
    import torch

    import gnn_sparse_backend as gsb
    from tests.ops.operators import some_graph

    graph = some_graph()
    rel = gsb.RelGraph.from_graph(graph, torch.arange(40) % 3, 3)
    segments = gsb.Segments.from_lengths(torch.tensor([3, 0, 9]))

    def ones(*shape):
        return torch.ones(shape, requires_grad=True)

    def backward(out):
        out.sum().backward()

    def shapes(i):
        backward(gsb.spmm(some_graph(5 + i % 500, 12, i), ones(12, 3), reduce="mean"))

    return {
        "aggregate": lambda i: backward(gsb.aggregate(graph, f"mul(x0, {i}.5)", [("u", ones(12, 3))], "max")),
        "spmm": lambda i: backward(gsb.spmm(graph, ones(12, i), ones(40))),
        "edge_map": lambda i: backward(gsb.edge_map(graph, "mul(x0, x1)", [("u", ones(12, i)), ("v", ones(9, i))])),
        "gspmm": lambda i: backward(gsb.gspmm(graph, "mul", "min", ones(12, i), ones(40, 1), ties="last")),
        "attention": lambda i: backward(gsb.gat_attention(graph, ones(9, 1), ones(12, 1), ones(12, 1, i))),
        "softmax": lambda i: backward(gsb.edge_softmax(graph, ones(40, i))),
        "rgms": lambda i: backward(gsb.rgms(rel, ones(12, i), ones(3, i, 2))),
        "segment_mm": lambda i: backward(gsb.segment_mm(ones(12, i), ones(3, i, 2), segments)),
        "segment_reduce": lambda i: backward(gsb.segment_reduce(ones(12, i), segments, "max")),
        "shapes": shapes,
    }


def lazy_tensors(frameworks):
    """Rounds of lazy tensors."""
    import torch
    from torch.nn.functional import leaky_relu

    import gnn_sparse_backend as gsb

    found = {}
    edges = torch.stack([torch.arange(40) % 12, torch.arange(40) % 7])
    for framework in frameworks:
        gsb.enable(framework)

    def ones(*shape):
        return torch.ones(shape, requires_grad=True)

    def backward(out):
        out.sum().backward()

    if "pyg" in frameworks:
        from torch_geometric.nn import MessagePassing

        class Scaled(MessagePassing):
            def forward(self, x, slope):
                return self.propagate(edges, x=x, slope=slope)

            def message(self, x_i, x_j, slope):
                return leaky_relu(x_j * 2.0 + x_i, slope)

        layer = Scaled()
        found["pyg, messages"] = lambda i: backward(layer(ones(12, 3), 1 / i))
        found["pyg, widths"] = lambda i: backward(layer(ones(12, i), 0.5))
    if "dgl" in frameworks:
        import dgl
        from dgl import function as fn

        homogeneous = dgl.graph((edges[0], edges[1]), num_nodes=12)

        def local(x, slope):
            with homogeneous.local_scope():
                homogeneous.ndata["x"] = x
                homogeneous.apply_edges(fn.u_sub_v("x", "x", "m"))
                homogeneous.edata["m"] = leaky_relu(homogeneous.edata["m"] * 2.0, slope)
                homogeneous.update_all(fn.copy_e("m", "m"), fn.sum("m", "y"))
                backward(homogeneous.ndata["y"])

        found["dgl, messages"] = lambda i: local(ones(12, 3), -1 / i)
        found["dgl, widths"] = lambda i: local(ones(12, i), 0.5)
    return found


def main(count: int, divisor: int, *frameworks: str) -> None:
    divide_bounds(divisor)
    every, halves = rounds() | lazy_tensors(frameworks), []
    if divisor != 1:
        tracemalloc.start()
    for half in range(2):
        tracemalloc.reset_peak()
        for i in range(half * count // 2, (half + 1) * count // 2):
            for run in every.values():
                run(1 + i)
        gc.collect()
        halves.append(
            {
                "resident": psutil.Process().memory_info().rss,
                "objects": tracemalloc.get_traced_memory()[1],
                "caches": {each.name: astuple(each)[1:] for each in bounded.statistics()},
            }
        )
    print(json.dumps({"rounds": [*every], "halves": halves}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
