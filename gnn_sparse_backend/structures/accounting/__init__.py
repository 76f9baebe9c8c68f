"""What takes memory: of a structure, and of the process."""
