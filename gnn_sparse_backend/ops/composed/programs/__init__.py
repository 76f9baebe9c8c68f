"""Programs of stage I of products of composed matrices, and what is static in them."""
