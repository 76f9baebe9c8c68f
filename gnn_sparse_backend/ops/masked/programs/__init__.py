"""What is static in them, and the programs of stage I."""
