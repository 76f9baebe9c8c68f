"""What the plug-ins for all frameworks share."""
