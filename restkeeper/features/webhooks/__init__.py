"""Webhooks: who is sent events, and the deliveries."""
