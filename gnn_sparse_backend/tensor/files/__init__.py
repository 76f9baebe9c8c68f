"""Tensors in files: NumPy's npz, as SciPy has it where SciPy has the format, and MatrixMarket."""
