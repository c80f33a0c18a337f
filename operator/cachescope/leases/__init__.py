"""Leases: how guards and gateways get and keep the right to act on the heads that they read."""
