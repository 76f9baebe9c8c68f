"""A record of what rearranging the code must not change, and what differs from it: `python -m tests.unchanged`."""
