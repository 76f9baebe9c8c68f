"""Schedule primitives of our own, where a sparse program needs what TVM's refuse. One primitive a file."""
