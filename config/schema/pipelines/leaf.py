"""The base of the kinds of nodes that contain no other nodes."""

from collections.abc import Iterator

from config.schema.section import Section

Place = tuple[str | int, ...]
"""A place inside a node, such as ``("guard", "model")``."""


class LeafConfig(Section):
    """A kind of node that contains no other nodes. Its inputs are those of its step, or the fields of the request."""

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        """The models that the node calls, each with its place in this section."""
        return iter(())

    def placed_conditions(self) -> Iterator[tuple[Place, str]]:
        """The conditions of the node, each with its place in this section."""
        return iter(())

    def fixed_inputs(self) -> frozenset[str]:
        """The names of the inputs, if the kind of the node fixes them."""
        return frozenset()

    def needs_inputs(self) -> bool:
        """Whether the step of the node must have inputs."""
        return False

    def sends_values(self) -> bool:
        """Whether the models receive requests like those of the pipeline: of tensors, or chats."""
        return True
