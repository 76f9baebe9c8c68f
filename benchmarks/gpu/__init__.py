"""Every open question about a GPU, answered by one command in some minutes: ``python -m benchmarks.gpu``."""
