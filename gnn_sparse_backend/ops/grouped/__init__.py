"""Products and reductions of rows that belong to segments."""
