"""Envoy's bootstrap for the gateway: settings in, a dictionary out (written as JSON by the caller).

Rules:

1. Nothing is proxied that the processor did not decide: the only route to an engine asks for the destination header, which
   is removed from every client's request before anything else looks at it. All else ends in the default route's own 503.
2. A processor that is dead, slow or wrong is a 503, never a pass.
3. Every answer that Envoy makes up itself has OpenAI's shape with a code of `errors.ERRORS`, and says nothing of Envoy's inside.
4. No limit on how long an answer takes, only on how long nothing moves.
5. Who the client is by its certificate comes from the connection (`client_certificates`); the header that proxies use for it
   (`x-forwarded-client-cert`) is removed like every other one of its kind, and nothing reads it.
6. The path reaches the decision as the client sent it: Envoy neither normalizes it nor merges slashes, since the decision
   allows an exact list of paths and two readings of one path would be a way around it.

7. The operator's probe has a listener of its own, so that it needs no certificate of the clients' door and no name of it; nobody
   else's credential is let in there, so that no client goes around that door.

What a client may send, which endpoint serves it and what it is told are the decision's.

Source: Envoy API v3; the destination header is the convention of the Gateway API inference extension (endpoint picker protocol).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from cachescope.core.probes import SCHEME as PROBE_SCHEME
from cachescope.gateway import client_certificates
from cachescope.gateway.local_replies import local_replies

DESTINATION_HEADER: Final = "x-gateway-destination-endpoint"
LENGTH_HEADER: Final = "x-cachescope-body-length"
REQUEST_ID_HEADER: Final = "x-request-id"
COMPARTMENT_HEADER: Final = "x-cachescope-compartment"
CONTEXT_HEADER: Final = "x-cachescope-context"
HANDLE_HEADER: Final = "x-cachescope-handle"

_UNTRUSTED: Final = (DESTINATION_HEADER, REQUEST_ID_HEADER, "x-tenant-id", "x-cache-salt", "forwarded", "x-real-ip")
_UNTRUSTED_PREFIXES: Final = ("x-forwarded-", "x-envoy-")
# Of ours a client may say what begins with `co` or `h` (compartment, context, handle): RE2 cannot say "all but these names".
_UNTRUSTED_OURS: Final = "x-cachescope-(?:[^ch].*|c|c[^o].*|)"
_SAID: Final = (COMPARTMENT_HEADER, CONTEXT_HEADER, HANDLE_HEADER)
# What Envoy itself adds on the way and an engine has no use for; the destination has done its work by then.
_NOT_UPSTREAM: Final = (
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-envoy-external-address",
    "x-envoy-internal",
)
_UNBOUNDED: Final = 1_000_000
_TYPE: Final = "type.googleapis.com/envoy.extensions."
_SECRET_NAME: Final = "listener"  # noqa: S105 a resource's name


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """What an installation may set.

    Attributes:
        processor_socket: Path of the Unix socket on which the external processor listens.
        listen_address: Address for clients.
        listen_port: Port for clients.
        probe_port: Port for the operator's probe, plain HTTP; 0 for none.
        secret_file: Path of the file that holds `secret(...)` as JSON, for TLS; plain HTTP without it.
        authorities_file: Path of the file that holds `authorities(...)` as JSON: who vouches for certificates of clients. Without
            it none is asked for.
        admin_port: Port of Envoy's admin interface on 127.0.0.1.
        admin_socket: Path of a Unix socket for the admin interface, instead of the port.
        message_seconds: How long the processor may take for one message. Envoy 1.40 does not hold to it in full-duplex mode,
            where `processor.serve` keeps the time; it is set for versions that do.
        frozen_seconds: After how long a processor that answers no ping is given up, with all requests under way.
        upload_idle_seconds: How long a request may stand still before it has a destination.
        upload_seconds: How long a whole request may take to arrive.
        stream_idle_seconds: How long an answer may stand still.
        connect_seconds: How long a connection to an engine may take.
        keepalive_seconds: How long an idle connection to an engine is kept. Below the engine's own limit (uvicorn: 5 s), or
            a request meets a connection that is being closed and ends in a 503.
    """

    processor_socket: str
    listen_address: str = "0.0.0.0"  # noqa: S104 the clients' front door
    listen_port: int = 8080
    probe_port: int = 0
    secret_file: str | None = None
    authorities_file: str | None = None
    admin_port: int = 9901
    admin_socket: str | None = None
    message_seconds: float = 5.0
    frozen_seconds: float = 10.0
    upload_idle_seconds: float = 60.0
    upload_seconds: float = 300.0
    stream_idle_seconds: float = 600.0
    connect_seconds: float = 2.0
    keepalive_seconds: float = 3.0


def bootstrap(settings: EnvoySettings) -> dict[str, Any]:
    """Envoy's whole static configuration.

    Args:
        settings: The installation's settings.

    Returns:
        A bootstrap, ready for JSON.
    """
    listeners = [_clients(settings), *([_probes(settings)] if settings.probe_port else [])]
    return {
        "node": {"id": "cachescope-gateway", "cluster": "cachescope-gateway"},
        "admin": {"address": _admin_address(settings)},
        "static_resources": {"listeners": listeners, "clusters": [_engines(settings), _processor(settings)]},
    }


def secret(certificate: str, key: str, directory: str) -> dict[str, Any]:
    """The file that makes Envoy read a certificate again, without a restart, when its directory changes.

    Args:
        certificate: Path of the certificate chain in PEM.
        key: Path of the private key in PEM.
        directory: Directory whose renames announce a new pair; of a mounted Secret, the mount itself.

    Returns:
        A discovery response, ready for JSON.
    """
    pair = {
        "certificate_chain": {"filename": certificate},
        "private_key": {"filename": key},
        "watched_directory": {"path": directory},
    }
    kind = _TYPE + "transport_sockets.tls.v3.Secret"
    return {"resources": [{"@type": kind, "name": _SECRET_NAME, "tls_certificate": pair}]}


def _admin_address(settings: EnvoySettings) -> dict[str, Any]:
    if settings.admin_socket is not None:
        return _pipe(settings.admin_socket)
    return _tcp("127.0.0.1", settings.admin_port)


def _clients(settings: EnvoySettings) -> dict[str, Any]:
    secured: dict[str, Any] = {}
    if settings.secret_file is not None:
        secured = {"transport_socket": _named("envoy.transport_sockets.tls", _tls(settings.secret_file, settings.authorities_file))}
    return _listener("clients", settings.listen_address, settings.listen_port, {**_chain(_http(settings)), **secured})


def _probes(settings: EnvoySettings) -> dict[str, Any]:
    plain = replace(settings, secret_file=None, authorities_file=None)
    http = _http(plain)
    routes = http["route_config"]["virtual_hosts"][0]["routes"]
    http = {**http, "stat_prefix": "probes", "route_config": _routes_of("probes", [_no_probe(), *routes])}
    return _listener("probes", settings.listen_address, settings.probe_port, _chain(http))


def _chain(http: dict[str, Any]) -> dict[str, Any]:
    return {"filters": [_named("envoy.filters.network.http_connection_manager", http)]}


def _listener(name: str, address: str, port: int, chain: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "address": _tcp(address, port),
        "filter_chains": [chain],
        # A body is streamed to the processor and never held here; this bounds what one slow reader makes Envoy hold.
        "per_connection_buffer_limit_bytes": 1024 * 1024,
    }


def _tls(secret_file: str, authorities_file: str | None) -> dict[str, Any]:
    source = {"path_config_source": {"path": secret_file}, "resource_api_version": "V3"}
    common = {
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "tls_certificate_sds_secret_configs": [{"name": _SECRET_NAME, "sds_config": source}],
    }
    door, validation = client_certificates.handshake(authorities_file) if authorities_file else ({}, {})
    kind = _TYPE + "transport_sockets.tls.v3.DownstreamTlsContext"
    return {"@type": kind, **door, "common_tls_context": {**common, **validation}}


def _http(settings: EnvoySettings) -> dict[str, Any]:
    return {
        "@type": _TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "codec_type": "AUTO",
        "early_header_mutation_extensions": [_named("envoy.http.early_header_mutation.header_mutation", _untrusted_headers())],
        "http_filters": [
            *([client_certificates.statement_filter()] if settings.authorities_file else []),
            _named("envoy.filters.http.ext_proc", _external_processor(settings)),
            _named("envoy.filters.http.header_mutation", _decided_headers()),
            _named("envoy.filters.http.router", _router()),
        ],
        "route_config": _routes(settings),
        "local_reply_config": local_replies(),
        "common_http_protocol_options": {
            "headers_with_underscores_action": "REJECT_REQUEST",
            "idle_timeout": _seconds(settings.stream_idle_seconds),
        },
        "use_remote_address": True,
        "generate_request_id": True,
        "always_set_request_id_in_response": True,
        "server_name": "cachescope",
        "server_header_transformation": "OVERWRITE",
        "normalize_path": False,
        "merge_slashes": False,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
        "request_headers_timeout": "10s",
        "stream_idle_timeout": _seconds(settings.upload_idle_seconds),
        "request_timeout": _seconds(settings.upload_seconds),
    }


def _untrusted_headers() -> dict[str, Any]:
    exact = [{"remove": name} for name in _UNTRUSTED]
    prefixes = [{"remove_on_match": {"key_matcher": {"prefix": prefix}}} for prefix in _UNTRUSTED_PREFIXES]
    ours = {"remove_on_match": {"key_matcher": {"safe_regex": {"regex": _UNTRUSTED_OURS}}}}
    kind = _TYPE + "http.early_header_mutation.header_mutation.v3.HeaderMutation"
    return {"@type": kind, "mutations": [*exact, *prefixes, ours]}


def _external_processor(settings: EnvoySettings) -> dict[str, Any]:
    return {
        "@type": _TYPE + "filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "processor"}, "timeout": "0s"},
        "failure_mode_allow": False,
        "status_on_error": {"code": "ServiceUnavailable"},
        "message_timeout": _seconds(settings.message_seconds),
        "allow_mode_override": False,
        "request_attributes": list(client_certificates.ATTRIBUTES) if settings.authorities_file else [],
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            # Asked for only to keep the gRPC stream open until the answer has ended: see `processor`.
            "response_trailer_mode": "SEND",
        },
        "mutation_rules": {
            "allow_all_routing": False,
            "allow_envoy": False,
            "disallow_is_error": True,
        },
    }


def _decided_headers() -> dict[str, Any]:
    # In full-duplex mode Envoy drops the body's length, even one that the processor sets, and would send chunks.
    length = {"key": "content-length", "value": f"%REQ({LENGTH_HEADER})%"}
    set_length = {"append": {"header": length, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}
    kind = _TYPE + "filters.http.header_mutation.v3.HeaderMutation"
    # The processor drops what clients say to it; should it ever not, it ends here all the same.
    removed = [{"remove": name} for name in (LENGTH_HEADER, *_SAID)]
    return {"@type": kind, "mutations": {"request_mutations": [set_length, *removed]}}


def _router() -> dict[str, Any]:
    return {"@type": _TYPE + "filters.http.router.v3.Router", "suppress_envoy_headers": True}


def _routes(settings: EnvoySettings) -> dict[str, Any]:
    alive = {
        "match": {"path": "/healthz"},
        "direct_response": {"status": 200, "body": {"inline_string": "ok\n"}},
        **_unprocessed(),
    }
    # A tunnel's body never ends, so it could not be decided.
    tunnel = {"match": {"connect_matcher": {}}, "direct_response": {"status": 403}, **_unprocessed()}
    decided = {
        "match": {"prefix": "/", "headers": [{"name": DESTINATION_HEADER, "present_match": True}]},
        "route": {
            "cluster": "engines",
            "timeout": "0s",
            "idle_timeout": _seconds(settings.stream_idle_seconds),
            # The client's own Host is no business of an engine.
            "host_rewrite_header": DESTINATION_HEADER,
        },
        "request_headers_to_remove": list(_NOT_UPSTREAM),
    }
    undecided = {"match": {"prefix": "/"}, "direct_response": {"status": 503}}
    return _routes_of("clients", [tunnel, alive, decided, undecided])


def _routes_of(name: str, routes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}


def _no_probe() -> dict[str, Any]:
    """Who shows no credential of the probe meets nothing."""
    shown = {"name": "authorization", "string_match": {"prefix": f"{PROBE_SCHEME} "}, "invert_match": True}
    return {"match": {"prefix": "/", "headers": [shown]}, "direct_response": {"status": 404}, **_unprocessed()}


def _unprocessed() -> dict[str, Any]:
    disabled = {"@type": _TYPE + "filters.http.ext_proc.v3.ExtProcPerRoute", "disabled": True}
    return {"typed_per_filter_config": {"envoy.filters.http.ext_proc": disabled}}


def _engines(settings: EnvoySettings) -> dict[str, Any]:
    http = {
        "common_http_protocol_options": {"idle_timeout": _seconds(settings.keepalive_seconds)},
        "explicit_http_config": {"http_protocol_options": {}},
    }
    return {
        "name": "engines",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION_HEADER},
        "connect_timeout": _seconds(settings.connect_seconds),
        "typed_extension_protocol_options": _http_options(http),
        "circuit_breakers": _no_limits(),
        # A node that vanished sends no reset: found within 60 s and not after the idle timeout.
        "upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3}},
    }


def _processor(settings: EnvoySettings) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _pipe(settings.processor_socket)}}
    return {
        "name": "processor",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "processor", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "typed_extension_protocol_options": _http_options({"explicit_http_config": {"http2_protocol_options": _pings(settings)}}),
        # Each request holds one stream for as long as its answer lasts.
        "circuit_breakers": _no_limits(),
    }


def _pings(settings: EnvoySettings) -> dict[str, Any]:
    # No timer of Envoy's runs on a decision in full-duplex mode: a frozen process is found by its silence.
    interval, timeout = settings.frozen_seconds / 4, settings.frozen_seconds * 3 / 4
    pings = {"interval": _seconds(interval), "timeout": _seconds(timeout), "interval_jitter": {"value": 0}}
    return {"connection_keepalive": pings}


def _http_options(options: dict[str, Any]) -> dict[str, Any]:
    kind = _TYPE + "upstreams.http.v3.HttpProtocolOptions"
    return {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": kind, **options}}


def _no_limits() -> dict[str, Any]:
    # The default of 1,024 would refuse requests while engines have room; how much they take is the decision's to bound.
    limits = ("max_connections", "max_pending_requests", "max_requests")
    return {"thresholds": [{"priority": "DEFAULT", **dict.fromkeys(limits, _UNBOUNDED), "max_retries": 0}]}


def _named(name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "typed_config": config}


def _tcp(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _pipe(path: str) -> dict[str, Any]:
    return {"pipe": {"path": path}}


def _seconds(value: float) -> str:
    return f"{value:g}s"
