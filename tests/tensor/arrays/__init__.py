"""Arrays as users of NumPy expect them: parts, shapes, products by name and files."""
