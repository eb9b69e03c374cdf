"""The storage of this service: the stores that it supports, upgrades of stored items (`upgrades.py`), and samples."""

STORES = ("sqlite", "postgresql", "memory")  # schemes of DATABASE_URL with which this service is tested
