"""Objects read in this process: whoever polls with kubectl keeps a core busy with starting it."""

from __future__ import annotations

import json
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from e2e.stack.paths import KUBECONFIG
from e2e.stack.tenancy import API_VERSION

SECONDS = 10


class UnreadError(Exception):
    """The API server did not answer, or has no such object; the message says which."""


def get(plural: str, name: str, namespace: str) -> dict[str, Any]:
    """Read one of this project's objects.

    Args:
        plural: Its kind as paths name it, such as `servingpools`.
        name: Its name.
        namespace: Where it is.

    Raises:
        UnreadError: It could not be read.
    """
    return _read(f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}/{name}")


def pods(labels: str, namespace: str) -> list[dict[str, Any]]:
    """The pods that a label selector finds.

    Raises:
        UnreadError: They could not be read.
    """
    found: list[dict[str, Any]] = _read(f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': labels})}")["items"]
    return found


def pods_everywhere(labels: str) -> list[dict[str, Any]]:
    """The pods of all namespaces that a label selector finds.

    Raises:
        UnreadError: They could not be read.
    """
    found: list[dict[str, Any]] = _read(f"/api/v1/pods?{urlencode({'labelSelector': labels})}")["items"]
    return found


def asked(pod: dict[str, Any], port: int, path: str) -> dict[str, Any]:
    """The JSON object that a pod answers at a port, through the API server.

    Raises:
        UnreadError: It did not answer with one.
    """
    metadata = pod["metadata"]
    return _read(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}:{port}/proxy{path}")


def _read(path: str) -> dict[str, Any]:
    api = _api()
    try:
        answer = api.rest_client.request("GET", f"{api.configuration.host}{path}", _request_timeout=SECONDS)
        body = answer.read()
    except (client.ApiException, urllib3.exceptions.HTTPError) as error:
        raise UnreadError(f"GET {path}: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise UnreadError(f"GET {path}: {answer.status} {answer.reason}")
    found: dict[str, Any] = json.loads(body)
    return found


@cache
def _api() -> Any:  # noqa: ANN401 - the client has no types
    return config.new_client_from_config(str(KUBECONFIG))  # type: ignore[no-untyped-call]
