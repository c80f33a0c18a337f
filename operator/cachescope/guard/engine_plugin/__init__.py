"""The vLLM plugin: shares what is approved of a request, keeps the rest apart, and verifies every hit. See `entry`."""
