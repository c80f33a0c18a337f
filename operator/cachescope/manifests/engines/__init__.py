"""How each engine is started: one file an engine, read from its own source; what is the same for all of them is `launch`."""
