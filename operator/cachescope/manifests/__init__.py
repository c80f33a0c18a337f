"""Manifest builders: pure functions from a description to Kubernetes objects, one file a kind."""
