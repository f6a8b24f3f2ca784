"""Envoy in front of Headrace's endpoint picker, configured as the gateways of the Inference Extension configure it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Cluster = Literal["override_host", "original_dst"]
Mode = Literal["FULL_DUPLEX_STREAMED", "BUFFERED"]
TYPE = "type.googleapis.com/envoy.extensions"
DESTINATION = "x-gateway-destination-endpoint"


def configuration(
    picker: str,
    ports: Sequence[int],
    endpoints: Sequence[str],
    *,
    cluster: Cluster = "override_host",
    mode: Mode = "FULL_DUPLEX_STREAMED",
    subset: Sequence[str] | None = None,
    fail_open: bool = False,
    picks: bool = True,
) -> dict[str, Any]:
    """Envoy's file: its admin listener at the first port, the clients' listener at the second. Without `picks`, no
    picker stands between them."""
    manager = {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "main",
        "codec_type": "AUTO",
        "route_config": {"name": "main", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route()]}]},
        "http_filters": _filters(mode, subset, fail_open=fail_open, picks=picks),
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    model_servers = _original_dst() if cluster == "original_dst" else _override_host(endpoints)
    return {
        "admin": {"address": _address(f"127.0.0.1:{ports[0]}")},
        "static_resources": {
            "listeners": [
                {
                    "name": "main",
                    "address": _address(f"127.0.0.1:{ports[1]}"),
                    "filter_chains": [{"filters": filters}],
                }
            ],
            "clusters": [model_servers, _picker(picker)],
        },
    }


def _route() -> dict[str, Any]:
    retry = {"retry_on": "connect-failure,refused-stream", "num_retries": 3}
    return {
        "match": {"prefix": "/"},
        "route": {"cluster": "model-servers", "timeout": "300s", "idle_timeout": "300s", "retry_policy": retry},
    }


def _filters(mode: Mode, subset: Sequence[str] | None, *, fail_open: bool, picks: bool) -> list[dict[str, Any]]:
    trailers = "SEND" if mode == "FULL_DUPLEX_STREAMED" else "SKIP"
    processor = {
        "@type": f"{TYPE}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "10s"},
        "processing_mode": {
            "request_header_mode": "SEND",
            "response_header_mode": "SEND",
            "request_body_mode": mode,
            "response_body_mode": mode,
            "request_trailer_mode": trailers,
            "response_trailer_mode": trailers,
        },
        "message_timeout": "300s",
        "failure_mode_allow": fail_open,
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    }
    hint = {
        "@type": f"{TYPE}.filters.http.set_metadata.v3.Config",
        "metadata": [
            {"metadata_namespace": "envoy.lb.subset_hint", "value": {f"{DESTINATION}-subset": list(subset or ())}}
        ],
    }
    return [
        *([{"name": "envoy.filters.http.set_metadata", "typed_config": hint}] if subset is not None else []),
        *([{"name": "envoy.filters.http.ext_proc", "typed_config": processor}] if picks else []),
        {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}},
    ]


def _original_dst() -> dict[str, Any]:
    return {
        "name": "model-servers",
        "connect_timeout": "5s",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION},
    }


def _override_host(endpoints: Sequence[str]) -> dict[str, Any]:
    spread = {"@type": f"{TYPE}.load_balancing_policies.round_robin.v3.RoundRobin"}
    policy = {
        "@type": f"{TYPE}.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}},
            {"header": DESTINATION},
        ],
        "selected_host_key": {"key": "envoy.lb", "path": [{"key": f"{DESTINATION}-served"}]},
        "fallback_policy": _policies("round_robin", spread),
    }
    hosts = [{"endpoint": {"address": _address(endpoint)}} for endpoint in endpoints]
    return {
        "name": "model-servers",
        "connect_timeout": "5s",
        "type": "STATIC",
        "load_balancing_policy": _policies("override_host", policy),
        "load_assignment": {"cluster_name": "model-servers", "endpoints": [{"lb_endpoints": hosts}]},
    }


def _picker(address: str) -> dict[str, Any]:
    options = {
        "@type": f"{TYPE}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    hosts = [{"endpoint": {"address": _address(address)}}]
    return {
        "name": "picker",
        "connect_timeout": "5s",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": hosts}]},
        "typed_extension_protocol_options": {f"{TYPE.split('/')[1]}.upstreams.http.v3.HttpProtocolOptions": options},
    }


def _policies(name: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": policy}
    return {"policies": [{"typed_extension_config": extension}]}


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
