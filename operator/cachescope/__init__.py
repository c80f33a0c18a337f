"""CacheScope: prefix-cache isolation for LLM engines as a property of the platform."""

__version__ = "0.1.0"
