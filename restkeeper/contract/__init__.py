"""The contract check: what changed between two OpenAPI documents of a version, and whether a client breaks by it."""
