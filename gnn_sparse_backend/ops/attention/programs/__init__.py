"""The stage I programs of attention and of the softmax over edges."""
