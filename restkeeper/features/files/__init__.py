"""A JSON file as a service: its arrays are collections, its objects singletons."""
