"""The collections of this service. A module here that has a `RESOURCE` is one; nothing else names it."""
