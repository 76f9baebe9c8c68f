"""Points in space: which are near others, and which are far from each other."""
