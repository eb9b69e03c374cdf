"""The schema of the items of each collection."""
