"""How often a caller may ask, how much it may write, and how often an address may fail."""
