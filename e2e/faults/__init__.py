"""Faults on the real cluster, and the record of what was used and revoked meanwhile."""
