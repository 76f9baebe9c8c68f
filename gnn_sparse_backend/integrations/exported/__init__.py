"""Packages of whole models: what ``torch.export`` makes of a model, with our operators, beside a pack of their kernels.

package.py    ``gsb.export``: a model to a package and its pack
load.py       ``gsb.load_export``: the package as a function, in a process without the framework and the compiler
operators.py  every operator that a package may call, known to PyTorch
aten.py       graphs of ATen, as the walk of ``..traced`` reads them
making.py     whether a package is being made
relations.py  operators on the edges of several relations, as index tensors
report.py     which layers of a model call our operators in its package, and why the others do not
"""
