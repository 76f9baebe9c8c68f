"""Products of matrices that are sums of formats (`formats.composed`)."""
