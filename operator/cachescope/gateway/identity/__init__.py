"""Who asks: verified credentials, and nothing else that a client says."""
