"""Functions in LLVM's language for instructions of processors that TVM has no words for, one kind a file."""
