"""Torch operators on sparse structures: ``Graph``, ``spmm`` and ``sddmm``.

The public names are those of ``gnn_sparse_backend`` itself; the modules here are::

    graph.py        Graph: an immutable sparse structure with its cached transpose
    structure.py    CSR arrays, what is derived from them, and the pair of a structure and its transpose
    sources.py      from the objects of libraries and frameworks to index arrays
    build.py        COO to CSR, CSR to CSC, index types
    statistics.py   in-degree distribution
    fingerprint.py  content hash
    checks.py       what is wrong with a structure, in words
    spmm.py         gsb.spmm
    sddmm.py        gsb.sddmm
    operands.py     what is wrong with a dense operand, in words, and which way it goes
    autograd.py     the two operators as autograd functions (eager mode)
    library.py      the two operators in torch.library (torch.compile, fake tensors, subclasses)
    layout.py       strides and alignment that kernels accept
    kernels.py      the boundary to compiled kernels
    devices.py      which kernels an operator runs on: those for the device of its operands
    cuda_*.py       what is particular to a GPU: plans, two passes, relational products
"""
