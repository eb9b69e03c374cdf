"""Attacks on a running service, at full length and with measurements: `python -m tests.attacks [NAME …]`.

Each module has functions `attack_…`. Such a function gets a folder, starts a service in it, asserts what must be true,
and returns a line with its measurements.
"""
