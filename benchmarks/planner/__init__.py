"""The planner's choices against the best that there is."""
