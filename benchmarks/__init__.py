"""Benchmarks of gnn_sparse_backend against the libraries its users would otherwise run.

Run them from the repository root, each as ``python -m benchmarks.NAME``:

spmm: the product alone, against DGL, PyTorch, PyG and SciPy.
graphsage: whole training epochs under DGL and PyG.
attention_layers: training steps of GAT, GATv2 and transformer layers under DGL and PyG, time and peak memory.
rgcn: two-layer relational networks under DGL and PyG, inference and training steps, time and peak memory.
overhead: what calling costs, on a small graph.
threads: one pool of threads against two.

Each prints its tables and writes JSON and a picture into ``out/`` (``threads`` prints alone). Every cell says how far
it is from the measured roofline; the five worst cells come with what their time goes into. Tables that are kept stand
in ``results/``, whose README says how a page is added.
"""
