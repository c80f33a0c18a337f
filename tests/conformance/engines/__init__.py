"""Real engines under the conformance suite: plain processes on loopback, each in a virtual environment of its own."""
