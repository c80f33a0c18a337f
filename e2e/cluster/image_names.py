"""Image names as container runtimes write them."""


def full_name(image: str) -> str:
    """Expands an image name as container runtimes do: without a registry it means Docker Hub's.

    Source: the reference grammar of distribution/reference (``ParseNormalizedNamed``).
    """
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif not {".", ":"} & set(first) and first != "localhost":
        image = f"docker.io/{image}"
    tagged = "@" in image or ":" in image.rpartition("/")[2]
    return image if tagged else f"{image}:latest"
