"""`keys create`: an API key, and the manifest of the Secret that holds its hash."""

from __future__ import annotations

import json
import secrets
import time
from typing import Annotated, Any

import typer
import yaml

from cachescope.cli import output
from cachescope.cli.contexts import current_namespace
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.gateway.identity.api_keys import NewKey, check, make_key

app = typer.Typer(no_args_is_help=True, help="Make keys.")


@app.callback()
def keys() -> None:
    """Make keys."""


@app.command("create")
def create(
    secret: Annotated[str, typer.Option(help="Name of the Secret to write; a Tenant of its namespace names it.")],
    principal: Annotated[str, typer.Option(help="Stable name of whom the key speaks for; it outlives the key.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the Secret and its Tenant.")] = None,
) -> None:
    """Make an API key: the key goes to standard error once, the Secret with its hash to standard output.

    The hash is worth something under this name in this namespace alone. A principal has a name that is not blank.
    """
    place = namespace or current_namespace()
    made = make_key(secrets.token_bytes(32), f"{place}/{secret}")
    check(made.key_id, made.hash, principal)
    document = manifest(made, place, secret, principal=principal, created=int(time.time()))
    output.text(yaml.safe_dump(document, sort_keys=False))
    output.aside(f"The key, shown this once: {made.token}")


def manifest(made: NewKey, namespace: str, name: str, *, principal: str, created: int) -> dict[str, Any]:
    """The Secret of a key; several keys may be put into one. `created` are seconds since 1970, by which keys can be revoked."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {API_KEYS_LABEL: "true"}},
        "type": "Opaque",
        "stringData": {made.key_id: json.dumps({"hash": made.hash, "principal": principal, "created": created})},
    }
