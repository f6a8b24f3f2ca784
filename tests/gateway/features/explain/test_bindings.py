"""`headrace check` describes each binding of a message broker in a line."""

from gateway.features.explain.bindings import binding_lines
from tests.support.gateways import config

BASE = {"topic": "in", "reply": {"topic": "out", "allowed": ["out.*"]}, "dead_letters": "dead"}


def test_each_binding_has_a_line() -> None:
    bus = [
        {"name": "a", "broker": "kafka://h:1", "tenant": "acme", "model": "chat", **BASE},
        {"name": "b", "broker": "nats://h:1", "key_header": "x-key", "path": "/v2/models/m/infer", **BASE},
    ]
    assert list(binding_lines(config(listen={"bus": bus}))) == [
        "listen.bus a: kafka in (group headrace) -> /v1/chat/completions of chat as tenant acme -> out, out.*; "
        "dead letters: dead",
        "listen.bus b: nats in (group headrace) -> /v2/models/m/infer as the holder of the key in the header x-key -> "
        "out, out.*; dead letters: dead",
    ]
