"""Builds the container images: ``python -m images <build [NAME...]|list|base>``.

Standard library only, so that the system's own python3 runs it. An image's tag is a digest of everything that goes into
it, so that ``list`` names the images without building them and ``build`` does nothing where nothing changed.
"""
