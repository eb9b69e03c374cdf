"""The interface as OpenAPI 3.1."""
