"""What gradients of reductions take beside messages: of means, of maxima and minima, and of products."""
