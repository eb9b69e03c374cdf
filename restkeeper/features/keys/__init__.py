"""API keys: the collection, and what they are checked by."""
