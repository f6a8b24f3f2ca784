"""Compiles the nodes that contain no other nodes. Their modules need extras, so each is imported on demand."""

from __future__ import annotations

from config.schema.pipelines.pipeline import NodeConfig
from gateway.pipelines.scope import PipelineNode


def template(config: NodeConfig) -> PipelineNode:
    """The node `template`."""
    from gateway.pipelines.leaves.template import TemplateNode

    assert config.template is not None
    return TemplateNode(config.template)
