"""Long sequences with one needle: the task, an encoder whose attention is sparse, its training and its report."""
