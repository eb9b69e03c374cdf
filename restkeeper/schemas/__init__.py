"""Marshmallow schemas and fields of items."""
