"""torch-sparse by its names."""
