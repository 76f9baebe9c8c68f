"""The workloads of Scorch (Yan et al., CGO 2026), end to end: ``python -m benchmarks.scorch``."""
