"""Our operators in programs that ``torch.compile`` traces.

``torch.compile`` has a program as a graph of calls of PyTorch, in which a layer of a framework is a gather, arithmetic
and a scatter. A walk over that graph, before autograd, puts our operators there; Inductor compiles the rest.

    entry_points.py  ``install`` and ``uninstall``: Inductor's pass while a framework is enabled; ``compile``
    walk.py          the graph followed with lazy tensors, by the rules of eager programs (``..lazy``)
    matching.py      what a node is: a gather, a scatter, a dropout
    pointers.py      and a reduction of segments
    softmaxes.py     and the softmax over edges or segments
    sweeping.py      nodes that go
    symbols.py       nodes as operands of lazy tensors
    host.py          the program as lazy tensors see it
    dropouts.py      operators on no structure, whose calls are counted
    sums.py          sums over rows, by PyTorch's kernel
    products.py      products that are added in place
    edges.py         operators on index tensors, whose ``Graph`` is found at run time
    segments.py      operators on pointers, as well
"""

from .entry_points import compile, install, uninstall

__all__ = ["compile", "install", "uninstall"]
