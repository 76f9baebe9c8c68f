"""The library of operators: each a few lines of stage I."""
