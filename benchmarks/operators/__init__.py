"""SpMM, SDDMM and their peers."""
