"""What an item of each collection is."""
