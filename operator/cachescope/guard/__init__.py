"""The guard: lets no request reach the engine without a valid permit of the current epochs."""
