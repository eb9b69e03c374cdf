"""The features: what a service can do without. Each is one module or package, and is opened by name."""
