"""Webhooks: how they are signed and sent."""
