"""The conformance suite: what one OpenAI-compatible engine does with salts and prefixes, seen from outside alone."""
