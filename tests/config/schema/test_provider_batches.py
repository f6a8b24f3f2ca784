"""`provider_batches` of a pool: only where a provider has batches."""

from typing import Any

import pytest
from pydantic import ValidationError

from config.schema.pool import PoolConfig

URL = "https://api.example.com"


def pool(**fields: Any) -> PoolConfig:
    return PoolConfig.model_validate({"name": "up", "endpoints": [URL], "provider_batches": {}, **fields})


@pytest.mark.parametrize("protocol", ["openai", "anthropic", {"name": "openai", "dialect": "openai"}])
def test_a_provider_of_batches_is_accepted(protocol: Any) -> None:
    made = pool(protocol=protocol)
    assert made.provider_batches is not None
    assert made.provider_batches.poll == 30.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"protocol": "oip-http"}, "needs the protocol openai"),
        ({"protocol": {"name": "openai", "dialect": "azure"}}, "needs the protocol openai"),
        ({"protocol": {"name": "openai", "only": "chats"}}, "needs the protocol openai"),
        ({"endpoints": [URL, f"{URL}/v2"]}, "needs one endpoint"),
        ({"endpoints": [], "runtime": {"kind": "llm", "model": "bundled:smollm2-135m-instruct"}}, "needs one endpoint"),
        ({"provider_batches": {"max_size": 1}}, "max_size"),
    ],
)
def test_a_pool_without_batches_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pool(**fields)
