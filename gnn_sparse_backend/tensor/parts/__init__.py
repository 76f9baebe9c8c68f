"""Parts of tensors by an index, and other shapes of them."""
