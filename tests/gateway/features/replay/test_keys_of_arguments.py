"""Replayed guards read the keys of arguments that are objects, as guards of requests do."""

import json
from typing import Any

import pytest

from config.schema.guards import NamedGuardConfig, PersonalGuardConfig, SecretsGuardConfig
from gateway.features.recording.entries import Content
from gateway.features.replay.guarding import matches
from policies.guards.compiled import rules_of
from policies.guards.masking import by_view

SECRETS = SecretsGuardConfig(name="s", kind="secrets")
PERSONAL = PersonalGuardConfig(name="p", kind="personal", action="block")
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzT4mQ8vLp2"


@pytest.mark.parametrize(
    ("guard", "arguments", "expected"),
    [
        (SECRETS, {"secretAccessKey": AWS}, True),
        (SECRETS, {"order": AWS}, False),
        (PERSONAL, {"bsn": 111222333}, True),
        (PERSONAL, {"order": 111222333}, False),
    ],
)
@pytest.mark.parametrize("side", ["prompt", "answer"])
def test_keys_of_recorded_arguments_count(
    guard: NamedGuardConfig, arguments: dict[str, Any], side: str, *, expected: bool
) -> None:
    used = {"type": "tool_use", "id": "t", "name": "f", "input": arguments}
    prompt = json.dumps({"messages": [{"role": "assistant", "content": [used]}]}).encode()
    answer = json.dumps({"role": "assistant", "content": [used]}).encode()
    content = Content(1, "/v1/messages", body=prompt, answer=answer)
    assert matches(content, side, by_view(rules_of(guard, 0))) is expected
