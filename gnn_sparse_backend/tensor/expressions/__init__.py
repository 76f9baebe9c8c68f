"""Index notation, and what becomes of it: products, a program of stage I, a kernel."""
