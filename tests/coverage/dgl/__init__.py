"""The layers of DGL."""
