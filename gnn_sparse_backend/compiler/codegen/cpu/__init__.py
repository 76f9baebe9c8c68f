"""Machine code for the CPU, by LLVM."""
