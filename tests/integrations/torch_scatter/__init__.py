"""torch-scatter by its names."""
