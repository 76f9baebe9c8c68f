"""Every layer of DGL and PyG, with and without the backend."""
