"""The running stack: an installation on a real cluster, shared by the demo and the end-to-end tests."""
