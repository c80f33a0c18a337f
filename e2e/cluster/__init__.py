"""Brings a real Kubernetes up for end-to-end runs, and takes it down again.

Run it as ``python -m e2e.cluster up`` from the root of the repository. It needs nothing but the standard library,
so that it works before any virtual environment exists. What it installs and keeps, and why, is in ``README.md``.
"""
