"""The catalogue: what each engine, version and route does with a salt, as data and its loader."""
