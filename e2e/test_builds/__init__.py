"""Builds of the product that tests alone make: its own code, with something broken or cut short before it starts.

Nothing in the product can switch one on: a test hands the source of a module here to the interpreter of a container.
"""
