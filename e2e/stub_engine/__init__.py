"""A stub that stands in for vLLM in the pods of tests. It computes nothing, and is never a product.

It looks like vLLM 0.32 to operator, guard, gateway and clients: command line, routes, metrics, engine client, and above all the
order of things that isolation rests on: a prefix is looked up when a request is scheduled, and an abort is a message in a queue.

Two things differ on purpose: tokens are words, and what was generated is not cached for later prompts.
"""
