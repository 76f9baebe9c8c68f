"""Programs of the frameworks as they are, shortened: ``python -m benchmarks.programs FOLDER``."""
