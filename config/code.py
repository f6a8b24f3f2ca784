"""The pool of the Python files that pipelines call: one server of all of them, with a model for each function."""

from collections.abc import Iterator

from config.schema.config import Config, PoolConfig
from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.pipeline import NodeConfig
from config.schema.runtimes.bundled import CodeRuntime

CODE_POOL = "_code"
"""The name of the pool. No pool of the YAML has it."""


def with_code(config: Config) -> Config:
    """The configuration with the pool of its Python files; the same without such files."""
    functions = functions_of(config)
    if not functions:
        return config
    runtime = CodeRuntime(functions=functions)
    pool = PoolConfig.model_construct(name=CODE_POOL, runtime=runtime)
    return config.model_copy(update={"pools": (*config.pools, pool)})


def functions_of(config: Config) -> tuple[CallConfig, ...]:
    """The functions of files that the pipelines call, each once."""
    pipelines = (model.pipeline for model in config.models if model.pipeline is not None)
    calls = (call for pipeline in pipelines for call in calls_of_files(pipeline))
    return tuple({call.receiver: call for call in calls}.values())


def calls_of_files(node: NodeConfig) -> Iterator[CallConfig]:
    """The calls of Python files in a node and in its inner nodes."""
    if node.call is not None and node.call.file is not None:
        yield node.call
    for inner in node.nodes():
        yield from calls_of_files(inner)
