"""The collections of this service: each module with a `RESOURCE` is one, and needs no other registration."""
