"""Marshmallow schemas: no store, no request."""
