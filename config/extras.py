"""The extras of this distribution that a configuration needs: optional packages, such as those of the LLM runtime."""

from collections.abc import Iterator

from config.schema.config import Config
from config.schema.guards import LanguageGuardConfig, ModelGuardConfig
from config.schema.pipelines.pipeline import NodeConfig
from config.schema.pool import PoolConfig
from config.schema.protocols.bus import BusProtocol
from config.schema.protocols.language import PromptProtocol
from config.schema.runtimes.bundled import EXTRAS, CodeRuntime, LlmRuntime, TensorRuntime
from config.stores import address_of, folder_of

_WITH_LIBRARIES = ("template", "rerank", "judge", "decode", "tokenize", "detokenize")
"""The kinds of nodes that always need the extra of pipelines."""
_WITH_CONDITIONS = ("ensemble", "switch", "cascade", "guard")
"""The kinds of nodes that read tensors as arrays."""


def extras_of(config: Config) -> frozenset[str]:
    """The names of the extras. The needs of the files of a model repository are unknown."""
    return frozenset(_extras(config))


def _extras(config: Config) -> Iterator[str]:
    if any(getattr(config.listen, name) is not None for name in ("grpc", "endpoint_picker", "keda")):
        yield "grpc"
    if config.state.redis is not None:
        yield "redis"
    if config.traces is not None:
        yield "traces"
    if config.state.database.startswith("postgres"):
        yield "postgres"
    if config.guards:
        yield "guards"
    if any(isinstance(guard, LanguageGuardConfig) for guard in config.guards):
        yield "languages"
    for binding in config.listen.bus:
        yield binding.broker.scheme
    for pool in config.pools:
        yield from _of_pool(pool)
    has_tensors = any(pool.takes_tensors for pool in config.pools)
    if has_tensors and any(isinstance(guard, ModelGuardConfig) and guard.match_if for guard in config.guards):
        yield "pipelines"
    for model in config.models:
        if model.embeddings is not None:
            yield "embeddings"
        if model.pipeline is not None and _needs_libraries(model.pipeline, has_tensors=has_tensors):
            yield "pipelines"


def _of_pool(pool: PoolConfig) -> Iterator[str]:
    runtime, discover = pool.runtime, pool.discover
    if isinstance(runtime, LlmRuntime):
        yield "llm"
    if isinstance(runtime, TensorRuntime | CodeRuntime):
        yield "tensor"
    if isinstance(runtime, TensorRuntime):
        for name in runtime.bundled:
            yield from EXTRAS[name]
        if any(folder_of(each) is None and address_of(each).bucket for each in runtime.repository):
            yield "stores"
    if isinstance(pool.protocol, BusProtocol):
        yield from (endpoint.url.partition(":")[0].partition("+")[0] for endpoint in pool.endpoints)
    if pool.protocol.name.endswith("-grpc"):
        yield "grpc"
    if discover is not None and (discover.dns is not None or discover.srv is not None):
        yield "discovery"
    if isinstance(pool.protocol, PromptProtocol) and pool.protocol.chat_template is not None:
        yield "templates"


def _needs_libraries(node: NodeConfig, *, has_tensors: bool) -> bool:
    kinds = _WITH_LIBRARIES + (_WITH_CONDITIONS if has_tensors else ())
    if any(getattr(node, kind) for kind in kinds) or (node.agree is not None and node.agree.by == "edit"):
        return True
    return any(_needs_libraries(inner, has_tensors=has_tensors) for inner in node.nodes())
