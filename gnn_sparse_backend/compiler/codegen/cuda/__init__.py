"""Machine code for NVIDIA's GPUs: CUDA source, its compilers, and what runs the result."""
