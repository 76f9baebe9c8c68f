"""FlexAttention: scores and masks that a user writes as functions, on kernels for the blocks of a mask."""
