"""Linear layers of pruned weights, and a layer of BERT with them: problems, and whoever can solve them."""
