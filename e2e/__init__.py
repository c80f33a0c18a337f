"""End-to-end runs of CacheScope on a real Kubernetes."""
