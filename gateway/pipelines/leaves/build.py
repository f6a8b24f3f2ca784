"""Compiles the nodes that contain no other nodes. Their modules need extras, so each is imported on demand."""

from __future__ import annotations

from config.schema.pipelines.pipeline import NodeConfig
from gateway.pipelines.scope import PipelineNode

KINDS = frozenset(("template", "rerank", "judge", "decode", "tokenize", "detokenize", "call", "agree"))
"""The kinds of nodes that `compile_leaf` compiles: fields of `NodeConfig`."""


def compile_leaf(config: NodeConfig) -> PipelineNode:
    """Compile a node of one of `KINDS`. Raises ModuleNotFoundError if an extra is missing."""
    if config.template is not None:
        from gateway.pipelines.leaves.template import TemplateNode

        return TemplateNode(config.template)
    if config.rerank is not None:
        from gateway.pipelines.leaves.rerank import RerankNode

        return RerankNode(config.rerank)
    if config.judge is not None:
        from gateway.pipelines.leaves.judge import JudgeNode

        return JudgeNode(config.judge)
    if config.decode is not None:
        from gateway.pipelines.leaves.decode import DecodeNode

        return DecodeNode(config.decode)
    if config.tokenize is not None or config.detokenize is not None:
        from gateway.pipelines.leaves import tokens

        if config.tokenize is not None:
            return tokens.TokenizeNode(config.tokenize)
        assert config.detokenize is not None
        return tokens.DetokenizeNode(config.detokenize)
    if config.call is not None:
        from gateway.pipelines.leaves.call import CallNode

        return CallNode(config.call)
    from gateway.pipelines.leaves.agree import AgreeNode

    assert config.agree is not None
    return AgreeNode(config.agree)
