"""Attacks on a running service, at full length and with their times: `python -m tests.attacks [NAME …]`.

Each module here has functions `attack_…`: one takes a folder, starts a service of its own in it, asserts what must
hold, and returns a line with what it measured.
"""
