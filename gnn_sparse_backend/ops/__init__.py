"""Torch operators on sparse structures: ``Graph``, ``spmm`` and ``sddmm``.

The public names are those of ``gnn_sparse_backend`` itself; the modules here are::

    graph.py        Graph: an immutable sparse structure with its cached transpose
    sources.py      from framework and library objects to CSR arrays
    build.py        COO to CSR and CSR to CSC, index types
    checks.py       what is wrong with a structure or an operand, in words
    spmm.py         gsb.spmm
    sddmm.py        gsb.sddmm
    autograd.py     the two operators as autograd functions (eager mode)
    library.py      the two operators in torch.library (torch.compile, fake tensors)
    kernels.py      the boundary to compiled kernels
"""
