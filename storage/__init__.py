"""How this service stores its items: in which stores, upgraded by what (`upgrades.py`), and samples to start from."""

STORES = ("sqlite", "memory")  # schemes of DATABASE_URL: the stores that this service has been tested with
