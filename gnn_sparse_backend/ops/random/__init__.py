"""Random numbers of PyTorch's generators, bit for bit, and what is made of them."""
