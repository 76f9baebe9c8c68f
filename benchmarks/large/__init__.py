"""Training on the full graph at the size of ogbn-products, in little memory."""
