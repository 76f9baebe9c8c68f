"""Our operators in programs that torch.compile traces."""
