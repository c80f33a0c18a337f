"""Client certificates: how Envoy asks for them and verifies them, and how what it says of one is read.

Rules:

1. A certificate is asked for and never required, so that other credentials stay possible. One that does not verify (of another
   authority, expired, not for clients) fails the handshake: there is no request yet that could be answered.
2. What a certificate says comes from the connection, as an attribute of the processor's message. No header says it: a client could.
3. Of several URIs in one certificate Envoy's own attribute (`connection.uri_san_peer_certificate`) says the first, which hides the
   others. Its formatter says them all, joined by commas, so a filter formats them into filter state, which no client reaches, and
   that is the attribute. A SPIFFE id holds no comma: two of them never read as one.
4. No TLS session is resumed: a resumed one would present a certificate that nobody has verified since. On a connection that lasts,
   the end of the certificate is looked at with every request; an authority that is taken away counts for new connections alone.

Tried on Envoy 1.40: certificates with one URI, two, none, and one that holds a comma.

Source: Envoy API v3; envoy.extensions.filters.http.set_filter_state.v3, the formatters `DOWNSTREAM_PEER_…`, CEL attributes.
"""

from __future__ import annotations

from typing import Any, Final

from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway.exchange import Peer

CA_NAME: Final = "clients"
_KEY: Final = "cachescope.peer"
_STATEMENT: Final = "%DOWNSTREAM_PEER_CERT_V_START(%s)% %DOWNSTREAM_PEER_CERT_V_END(%s)% %DOWNSTREAM_PEER_URI_SAN%"
_PRESENTED: Final = "connection.mtls"
_STATED: Final = f"filter_state['{_KEY}']"
_PROCESSOR: Final = "envoy.filters.http.ext_proc"
_TYPE: Final = "type.googleapis.com/envoy.extensions."

ATTRIBUTES: Final = (_PRESENTED, _STATED)
"""What the processor asks Envoy for."""


def authorities(file: str, directory: str) -> dict[str, Any]:
    """The file that makes Envoy read the authorities of clients again, without a restart, when their directory changes.

    Args:
        file: Path of their certificates in PEM.
        directory: Directory whose renames announce new ones.

    Returns:
        A discovery response, ready for JSON.
    """
    context = {"trusted_ca": {"filename": file}, "watched_directory": {"path": directory}}
    kind = _TYPE + "transport_sockets.tls.v3.Secret"
    return {"resources": [{"@type": kind, "name": CA_NAME, "validation_context": context}]}


def handshake(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What TLS with clients is set to, given the file that holds `authorities(...)`: of the door, and of its common part."""
    source = {"path_config_source": {"path": file}, "resource_api_version": "V3"}
    door = {
        "require_client_certificate": False,
        "disable_stateless_session_resumption": True,
        "disable_stateful_session_resumption": True,
    }
    return door, {"validation_context_sds_secret_config": {"name": CA_NAME, "sds_config": source}}


def statement_filter() -> dict[str, Any]:
    """The filter that formats what a certificate says into filter state; it stands before the processor."""
    value = {
        "object_key": _KEY,
        "factory_key": "envoy.string",
        "format_string": {"text_format_source": {"inline_string": _STATEMENT}, "omit_empty_values": True},
    }
    config = {"@type": _TYPE + "filters.http.set_filter_state.v3.Config", "on_request_headers": [value]}
    return {"name": "envoy.filters.http.set_filter_state", "typed_config": config}


def peer_of(message: ext_proc.ProcessingRequest) -> Peer | None:
    """The certificate of the client, from the first message of a stream; `None` where it presented none.

    What cannot be read is a certificate that names nobody and ended long ago.
    """
    if _PROCESSOR not in message.attributes:
        return None
    found = message.attributes[_PROCESSOR].fields
    if not found[_PRESENTED].bool_value:
        return None
    return _read(found[_STATED].string_value)


def _read(statement: str) -> Peer:
    issued, _, rest = statement.partition(" ")
    expires, _, uris = rest.partition(" ")
    if not (issued.isdecimal() and expires.isdecimal()):
        return Peer("", 0, 0)
    return Peer(uris, int(issued), int(expires))
