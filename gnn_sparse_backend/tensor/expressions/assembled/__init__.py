"""Results with coordinates of their own: counted first, then filled."""
