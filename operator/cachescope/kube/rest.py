"""Plain requests to the API server: JSON in, JSON out, its errors as the project's own.

The typed client would build and take apart thousands of objects that nobody needs typed; its transport (credentials, TLS, token
renewal) is what is used here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from cachescope import __version__
from cachescope.core.errors import ClusterError

REQUEST_SECONDS = 30.0
DEEPEST = 12_000
"""Recursion limit of the process. The API server keeps objects nested 10,000 deep (anybody's `managedFields` will do), and one that
cannot be parsed would take the list of everybody's with it. So deep, the parser needs 2 of the 8 MiB that a stack usually has."""

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
ACCEPTED = "application/json, application/jwk-set+json"
"""JSON; the API server gives its own token keys by that other name alone (RFC 7517, 8.5.2)."""
USER_AGENT = f"cachescope/{__version__}"
"""The API server takes the part before the slash for the field manager, where a request names none."""

Document = dict[str, Any]
"""One object as the API server gives it."""


class ApiError(ClusterError):
    """The API server refused, or could not be reached.

    Attributes:
        status: HTTP status, or 0 when there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotFoundError(ApiError):
    """There is no such object (404)."""


class ConflictError(ApiError):
    """Somebody else wrote first, or the object is there already (409)."""


class ExpiredError(ApiError):
    """The version to watch from is gone (410): list again."""


_ERRORS: Mapping[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: ExpiredError}


class Rest:
    """Requests to one API server; use it as an asynchronous context manager."""

    def __init__(self) -> None:
        self._api: client.ApiClient | None = None

    async def __aenter__(self) -> Rest:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST))
        await load_configuration()
        self._api = client.ApiClient()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._api is not None:
            await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str, **query: str) -> Document:
        """Read an object or a list. Without a `resourceVersion` the answer is read by quorum."""
        return await self._json("GET", path, query=query)

    async def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """Create an object below the path of its list."""
        return await self._json("POST", path, body=document, query=query)

    async def replace(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """Replace an object, if it still has the document's `resourceVersion`."""
        return await self._json("PUT", path, body=document, query=query)

    async def apply(self, path: str, document: Mapping[str, Any], field_manager: str) -> Document:
        """Apply an object server-side; what it names is ours from then on."""
        query = {"fieldManager": field_manager, "force": "true"}
        return await self._json("PATCH", path, body=document, query=query, content_type=APPLY_PATCH)

    async def merge(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """Patch an object by merging (RFC 7386)."""
        return await self._json("PATCH", path, body=document, query=query, content_type=MERGE_PATCH)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **options: str) -> None:
        """Delete an object, if it still has that UID and version; one that is gone already is no error.

        Args:
            path: Of the object.
            uid: It must have.
            resource_version: It must have.
            options: Others of `DeleteOptions`. They go into the body: with one, the API server passes over the query.
        """
        conditions = {key: value for key, value in {"uid": uid, "resourceVersion": resource_version}.items() if value}
        try:
            await self._json("DELETE", path, body={**options, "preconditions": conditions})
        except NotFoundError:
            return

    async def watch(self, path: str, *, resource_version: str, seconds: int, **query: str) -> AsyncIterator[Document]:
        """Events from a version on, until the API server ends the watch.

        Raises:
            ExpiredError: The version is gone.
            ApiError: The watch broke.
        """
        options = {
            "watch": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        response = await self._send("GET", path, query={**query, **options}, seconds=seconds + REQUEST_SECONDS)
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error(int(event["object"].get("code") or 500), path, str(event["object"].get("message")))
                yield event
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            raise ApiError(0, f"the watch of {path} broke ({type(error).__name__}); it starts again") from error
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        response = await self._send(method, path, body=body, query=query, content_type=content_type)
        try:
            found: Document = json.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            raise ApiError(0, f"the answer to {method} {path} was lost ({type(error).__name__}); try again") from error
        return found

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        seconds: float = REQUEST_SECONDS,
    ) -> aiohttp.ClientResponse:
        if self._api is None:
            raise RuntimeError("requests are sent inside `async with Rest()`; enter it first")
        _check(path)
        headers = {"Content-Type": content_type, "Accept": ACCEPTED, "User-Agent": USER_AGENT}
        url = self._api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
            wrapped = await self._api.rest_client.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=aiohttp.ClientTimeout(total=seconds)
            )
            response: aiohttp.ClientResponse = wrapped.response
            if response.status < 400:
                return response
            raise _error(response.status, f"{method} {path}", _message(await response.read()))
        except (aiohttp.ClientError, TimeoutError, OSError, config.ConfigException) as error:
            raise ApiError(0, f"the API server did not answer {method} {path} ({type(error).__name__}); try again") from error


def collection(api_version: str, plural: str, namespace: str | None) -> str:
    """Path of all objects of a kind, in one namespace or (with `None`) in all."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


async def load_configuration() -> None:
    """Load the pod's ServiceAccount, or the user's kubeconfig outside a cluster."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        # Named here: the client reads the variable only once, when it is imported.
        await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))  # type: ignore[no-untyped-call]


def _check(path: str) -> None:
    """A name that came from an object must not lead to another one."""
    if any(part in {"", ".", ".."} for part in path.split("/")[1:]) or set(path) & set("?#%"):
        raise ApiError(400, f"{path!r} is no path of an object; correct the name in it")


def _error(status: int, what: str, message: str) -> ApiError:
    return _ERRORS.get(status, ApiError)(
        status, f"{what}: the API server answered {status} ({message}); check the Role and the object"
    )


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return "no reason given"
