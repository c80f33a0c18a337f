"""What of this host a build may use: its CA bundle and its package index, as secrets that leave no trace in the image.

Nothing else of the host's pip gets in: neither its environment nor its configuration files are seen by the build.
"""

import os
from collections.abc import Mapping
from pathlib import Path

CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE")
INDEX_VARIABLE = "PIP_INDEX_URL"
CA_IN_BUILD = "/run/secrets/ca"


def ca_bundle(environment: Mapping[str, str]) -> Path | None:
    """Gives the CA bundle that this host's environment names, where it does."""
    named = (environment.get(variable) for variable in CA_VARIABLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def pip_configuration(environment: Mapping[str, str]) -> str:
    """Renders the ``pip.conf`` of a build; it is empty but for its section on a host that sets nothing."""
    lines = ["[global]", "disable-pip-version-check = true", "root-user-action = ignore"]
    if ca_bundle(environment):
        lines.append(f"cert = {CA_IN_BUILD}")
    if index := environment.get(INDEX_VARIABLE):
        lines.append(f"index-url = {index}")
    return "\n".join([*lines, ""])


def secrets(folder: Path) -> tuple[tuple[str, Path], ...]:
    """Writes the configuration into a folder, and returns the secrets of a build by id."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "pip.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(pip_configuration(os.environ))
    bundle = ca_bundle(os.environ)
    return (("pip", configuration), *((("ca", bundle),) if bundle else ()))
