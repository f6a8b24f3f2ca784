"""The provider of a pool's batches."""

from adapters.registry import Address
from adapters.upstreams import dial
from adapters.upstreams.dial import plain_client
from adapters.upstreams.provided.anthropic import AnthropicBatches
from adapters.upstreams.provided.openai import OpenAIBatches
from adapters.upstreams.provided.provider import ProviderBatches
from adapters.upstreams.scrubbing import scrubber
from config.schema.config import PoolConfig
from config.schema.protocols.language import AnthropicProtocol, OpenAIProtocol


def make(pool: PoolConfig) -> ProviderBatches:
    """The batches of a pool with `provider_batches`, with the pool's address, key and TLS."""
    (endpoint,) = pool.endpoints
    pool = pool.at(endpoint)
    checked = dial.tls_context(pool, pool.protocol.name) if endpoint.url.startswith("https://") else None
    client, scrubbed = plain_client(pool, Address(endpoint.url, tls=checked)), scrubber(pool, endpoint.url)
    if isinstance(pool.protocol, AnthropicProtocol):
        return AnthropicBatches(client, pool.protocol.its_version, pool.protocol.betas, scrubbed)
    root = pool.protocol.root if isinstance(pool.protocol, OpenAIProtocol) else None
    return OpenAIBatches(client, scrubbed, root)
