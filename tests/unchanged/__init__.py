"""A record of what a change of the code's arrangement must not change, and what differs from it: `python -m tests.unchanged`."""
