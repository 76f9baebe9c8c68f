"""The layers of PyG."""
