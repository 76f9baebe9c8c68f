"""torch-cluster by its names."""
