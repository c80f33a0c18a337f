"""`explain`: what the gateway would decide of a request, and why, from files or from what the cluster holds; nothing is sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from cachescope.api.documents import API_VERSION, Resource
from cachescope.api.pools import ServingPool
from cachescope.api.public_sources import PublicSource
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Tenant
from cachescope.cli import output
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.core.errors import SpecError
from cachescope.core.scopes import Credential

Document = dict[str, Any]
KINDS: tuple[type[Resource], ...] = (ServingPool, Tenant, CacheScope, PublicSource)

Pool = Annotated[str, typer.Option("--pool", help="Name of the pool.")]
Subject = Annotated[str, typer.Option("--as", help="Whose request: TENANT/PRINCIPAL.")]
Kind = Annotated[Literal["api-key", "jwt", "mtls", "service-account"], typer.Option("--credential", help="Of which kind it is.")]
Issuer = Annotated[str, typer.Option("--issuer", help="With `jwt`: the `iss` of the token.")]
Compartments = Annotated[list[str] | None, typer.Option("--token-compartment", help="A compartment that the token lists; repeat.")]
Files = Annotated[list[Path] | None, typer.Option("--file", "-f", help="A file or folder of resources; else the cluster's.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Where the pool is.")]
Home = Annotated[str, typer.Option("--installation", help="Namespace of the installation; the pool's without it.")]
RoutePath = Annotated[str, typer.Option("--path", help="Where the request goes.")]
ContextJson = Annotated[str | None, typer.Option("--context", help="x-cachescope-context, as an application would send it.")]
Compartment = Annotated[str | None, typer.Option("--compartment", help="x-cachescope-compartment.")]
Format = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to print it.")]


def explain(  # noqa: PLR0913 - the options are the request
    request: Annotated[Path, typer.Argument(help="The body of the request, JSON; `-` reads it from standard input.")],
    pool: Pool,
    subject: Subject,
    *,
    credential: Kind = "api-key",
    issuer: Issuer = "",
    token_compartments: Compartments = None,
    files: Files = None,
    namespace: Namespace = None,
    installation: Home = "",
    path: RoutePath = "/v1/chat/completions",
    context: ContextJson = None,
    compartment: Compartment = None,
    form: Format = "table",
) -> None:
    """Show what the gateway would decide of a request, each field of its record, and the rule that set it. Nothing is sent."""
    from cachescope.gateway import context as headers  # noqa: PLC0415 - the gateway's libraries take long to load
    from cachescope.gateway.bodies import BadBody, parse_body  # noqa: PLC0415 - the same
    from cachescope.gateway.envoy import COMPARTMENT_HEADER, CONTEXT_HEADER  # noqa: PLC0415 - the same
    from cachescope.gateway.exchange import RequestHead  # noqa: PLC0415 - the same
    from cachescope.gateway.explaining import Question, Who  # noqa: PLC0415 - the same
    from cachescope.gateway.explaining import explain as explained  # noqa: PLC0415 - the same

    tenant, principal = _subject(subject)
    where = namespace or current_namespace()
    given = [(COMPARTMENT_HEADER, compartment), (CONTEXT_HEADER, context)]
    head = RequestHead("POST", path, tuple((name, value) for name, value in given if value is not None))
    who = Who(tenant, Credential(credential, issuer, principal), frozenset(token_compartments or ()))
    try:
        question = Question(where, pool, who, path, parse_body(_read(request)), headers.said(head), time.time(), installation)
        found = explained(documents(files, where), question)
    except (BadBody, headers.BadHeader) as error:
        raise SpecError(f"the gateway would answer 400: {error}") from error
    _show(vars(found) | {"lines": [vars(line) for line in found.lines]}, form)


def _subject(text: str) -> tuple[str, str]:
    tenant, slash, principal = text.partition("/")
    if not (tenant and slash and principal):
        raise SpecError(f"--as {text!r} is not TENANT/PRINCIPAL; name both")
    return tenant, principal


def documents(files: Iterable[Path] | None, namespace: str) -> list[Document]:
    """The resources that decide: of the files, or of the cluster.

    Raises:
        SpecError: A file is no YAML of resources.
    """
    if files:
        return [document for path in files for document in _documents(path)]
    need_cluster()
    return asyncio.run(_listed(namespace))


def _read(path: Path) -> bytes:
    try:
        return typer.get_binary_stream("stdin").read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error}); name the file with the body") from error


def _documents(path: Path) -> list[Document]:
    if path.is_dir():
        return [document for inner in sorted(path.rglob("*.y*ml")) for document in _documents(inner)]
    try:
        loaded = list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path} cannot be read ({error}); name files with resources") from error
    found = [item for item in loaded if isinstance(item, dict)]
    parts = [inner for item in found for inner in (_items(item) if item.get("kind") == "List" else [item])]
    return [part for part in parts if isinstance(part, dict)]


def _items(listed: Document) -> list[Any]:
    items = listed.get("items")
    return items if isinstance(items, list) else []


async def _listed(namespace: str) -> list[Document]:
    from cachescope.kube.rest import Rest, collection  # noqa: PLC0415 - its libraries take long to load

    async with Rest() as rest:
        lists = [(kind, await rest.get(collection(API_VERSION, kind.PLURAL, namespace))) for kind in KINDS]
    return [{"kind": kind.KIND, "apiVersion": API_VERSION, **item} for kind, listed in lists for item in listed["items"]]


def _show(found: Document, form: str) -> None:
    plain = json.loads(json.dumps(found, default=str))
    if form == "json":
        output.document(plain)
        return
    output.text(f"{plain['verdict']}: {plain['message']}" if plain["message"] else str(plain["verdict"]))
    if plain["reuse"]:
        output.text(f"reuse: {plain['reuse']}; removed from the body: {', '.join(plain['stripped']) or 'nothing'}")
        output.table(("FIELD", "VALUE", "RULE"), [(line["name"], line["value"], line["rule"]) for line in plain["lines"]])
    for fault in plain["faults"]:
        output.aside(f"at fault: {fault}")
