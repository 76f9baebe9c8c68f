"""What the operators of all families stand on."""
