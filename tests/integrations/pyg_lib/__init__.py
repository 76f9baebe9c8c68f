"""pyg-lib by its names."""
