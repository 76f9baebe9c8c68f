"""What users call: arguments are checked here, and nowhere else."""
