"""The stage I programs of aggregations and edge maps."""
