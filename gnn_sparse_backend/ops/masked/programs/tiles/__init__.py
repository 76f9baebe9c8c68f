"""Programs on the blocks of a mask whose products are those of tiles of bfloat16 numbers."""
