"""Pure rules of CacheScope: values in, values out, standard library only.

There is no clock, no random and no I/O here: the caller passes them in. The guard ships this package into the engine's own
interpreter, so it runs on Python 3.10 to 3.13.
"""
