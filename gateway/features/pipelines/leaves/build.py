"""Compiles the nodes that contain no other nodes. Their modules need extras, so each is imported on demand."""

from __future__ import annotations

from config.schema.pipelines.pipeline import NodeConfig
from gateway.features.pipelines.scope import PipelineNode

KINDS = frozenset(("template", "rerank", "decode", "tokenize", "detokenize", "call"))
"""The kinds of nodes that `compile_leaf` compiles: fields of `NodeConfig`."""


def compile_leaf(config: NodeConfig) -> PipelineNode:
    """Compile a node of one of `KINDS`. Raises ModuleNotFoundError if an extra is missing."""
    if config.template is not None:
        from gateway.features.pipelines.leaves.template import TemplateNode

        return TemplateNode(config.template)
    if config.rerank is not None:
        from gateway.features.pipelines.leaves.rerank import RerankNode

        return RerankNode(config.rerank)
    if config.decode is not None:
        from gateway.features.pipelines.leaves.decode import DecodeNode

        return DecodeNode(config.decode)
    if config.tokenize is not None or config.detokenize is not None:
        return _tokens(config)
    from gateway.features.pipelines.leaves.call import CallNode

    assert config.call is not None
    return CallNode(config.call)


def _tokens(config: NodeConfig) -> PipelineNode:
    """A node with the tokenizer of a file, or with that of a model's servers."""
    section = config.tokenize or config.detokenize
    assert section is not None
    if section.model is not None:
        from gateway.features.pipelines.leaves.served_tokens import ServedDetokenizeNode, ServedTokenizeNode

        if config.tokenize is not None:
            return ServedTokenizeNode(config.tokenize)
        assert config.detokenize is not None
        return ServedDetokenizeNode(config.detokenize)
    from gateway.features.pipelines.leaves.tokens import DetokenizeNode, TokenizeNode

    if config.tokenize is not None:
        return TokenizeNode(config.tokenize)
    assert config.detokenize is not None
    return DetokenizeNode(config.detokenize)
