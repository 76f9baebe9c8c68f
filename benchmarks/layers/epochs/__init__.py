"""Training epochs of whole networks, eager and compiled."""
