"""An encoder of BERT's size pruned step by step: the task, the network, masks, the training and its report."""
