"""Compiles the nodes that contain no other nodes. Their modules need extras, so each is imported on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from config.schema.pipelines.pipeline import NodeConfig
from gateway.pipelines.scope import PipelineNode


def _template(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.template import TemplateNode

    assert config.template is not None
    return TemplateNode(config.template)


def _rerank(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.rerank import RerankNode

    assert config.rerank is not None
    return RerankNode(config.rerank)


def _judge(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.judge import JudgeNode

    assert config.judge is not None
    return JudgeNode(config.judge)


def _decode(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.decode import DecodeNode

    assert config.decode is not None
    return DecodeNode(config.decode)


def _tokenize(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.tokens import TokenizeNode

    assert config.tokenize is not None
    return TokenizeNode(config.tokenize)


def _detokenize(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.tokens import DetokenizeNode

    assert config.detokenize is not None
    return DetokenizeNode(config.detokenize)


def _call(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.call import CallNode

    assert config.call is not None
    return CallNode(config.call.model)


def _agree(_: object, config: NodeConfig) -> PipelineNode:
    from gateway.pipelines.leaves.agree import AgreeNode

    assert config.agree is not None
    return AgreeNode(config.agree)


KINDS: Mapping[str, Callable[[object, NodeConfig], PipelineNode]] = {
    "template": _template,
    "rerank": _rerank,
    "judge": _judge,
    "decode": _decode,
    "tokenize": _tokenize,
    "detokenize": _detokenize,
    "call": _call,
    "agree": _agree,
}
