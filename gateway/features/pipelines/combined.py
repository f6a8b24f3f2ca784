"""Combines the outputs of the members of an ensemble."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from adapters.tensors import Tensor
from config.schema.pipelines.pipeline import Combine, EnsembleConfig
from gateway.features.pipelines.arrays import array_of, tensor_from
from gateway.features.pipelines.scope import Output
from gateway.features.pipelines.values import UnusableValueError, Value
from policies.pipelines import votes
from policies.pipelines.votes import Ballot, Voter

_FLOATS = ("FP16", "FP32", "FP64", "BF16")


class UnfitError(Exception):
    """Answers that cannot be combined. `member` is the member at fault; empty if they do not fit each other."""

    def __init__(self, message: str, member: str = "") -> None:
        super().__init__(message)
        self.member = member


class Answered(NamedTuple):
    """The answer of one member. `order` is its place in the configuration."""

    member: str
    output: Output
    weight: int
    order: int


def settled(how: Combine, answered: Sequence[Answered], missing: Sequence[Voter]) -> Output | None:
    """The result, if no missing member can change it; None if one may."""
    if how == "first" and answered:
        return answered[0].output
    if how != "vote" or not missing:
        return None
    try:
        if (ballots := _ballots(answered)) is not None:
            label = votes.decided(ballots, missing)
            return None if label is None else _of_voters(answered, ballots, label)
        return _tensors_decided(answered, missing)
    except UnfitError:
        return None  # the whole round handles it


def combined(config: EnsembleConfig, answered: Sequence[Answered]) -> Output:
    """The result of all answers. Raises `UnfitError`."""
    answered = sorted(answered, key=lambda each: each.order)
    how = config.combine
    if how == "first" or (len(answered) == 1 and how != "vote"):
        return answered[0].output
    if how == "vote" and (ballots := _ballots(answered)) is not None:
        return _of_voters(answered, ballots, votes.winner(ballots))
    names = _common(answered)
    return Output({name: _one(config, name, answered) for name in names})


def _common(answered: Sequence[Answered]) -> list[str]:
    """The outputs that all members have, except for those that cannot be combined, such as the finish reason."""
    first, *others = answered
    names = [name for name in first.output.values if all(name in each.output.values for each in others)]
    if any(isinstance(first.output.values[name], Tensor) for name in names):
        return names
    if "text" in names:
        return ["text"]
    raise UnfitError("the members have no output in common")


def _one(config: EnsembleConfig, name: str, answered: Sequence[Answered]) -> Value:
    """One output of all members, combined."""
    values = [each.output.values[name] for each in answered]
    if not all(isinstance(value, Tensor) for value in values):
        if config.combine == "concat" and all(isinstance(value, str) for value in values):
            return "\n".join(values)
        raise UnfitError(f"`{name}` has no {config.combine}: it is not a tensor of each member")
    datatypes = {value.datatype for value in values}
    if len(datatypes) > 1:
        raise UnfitError(f"`{name}` has different datatypes: {', '.join(sorted(datatypes))}")
    from policies.pipelines import combine  # needs an extra

    parts = _parts(name, answered)
    try:
        if config.combine == "mean":
            return tensor_from(name, values[0].datatype, combine.weighted_mean(parts))
        if config.combine == "concat":
            return tensor_from(name, values[0].datatype, combine.concat(parts, config.axis))
        return _labels(name, values[0].datatype, combine.vote(parts))
    except combine.CombineError as error:
        raise UnfitError(f"`{name}`: {error.message}", error.member) from None


def _labels(name: str, datatype: str, array: Any) -> Tensor:
    """The labels of a vote: of integers in their own datatype, of scores as INT64."""
    return tensor_from(name, "INT64" if datatype in _FLOATS else datatype, array)


def _parts(name: str, answered: Sequence[Answered]) -> list[Any]:
    from policies.pipelines import combine

    try:
        return [
            combine.MemberTensor(each.member, array_of(each.output.values[name]), each.weight, each.order)
            for each in answered
        ]
    except UnusableValueError as error:
        raise UnfitError(str(error)) from None


def _tensors_decided(answered: Sequence[Answered], missing: Sequence[Voter]) -> Output | None:
    from policies.pipelines import combine

    outputs: dict[str, Value] = {}
    for name in _common(answered):
        try:
            array = combine.decided(_parts(name, answered), missing)
        except combine.CombineError:
            return None
        if array is None:
            return None
        outputs[name] = _labels(name, answered[0].output.values[name].datatype, array)
    return Output(outputs)


def _ballots(answered: Sequence[Answered]) -> list[Ballot[Hashable]] | None:
    """One ballot for each member, if they answer with texts; None for numbers, whose rows vote one by one."""
    labels = [_label(each) for each in answered]
    if any(label is None for label in labels):
        return None
    return [Ballot(label, each.weight, each.order) for label, each in zip(labels, answered, strict=True)]


def _label(each: Answered) -> Hashable:
    """A text without its surrounding spaces, or the data of tensors of texts; None for other tensors."""
    values = each.output.values
    if isinstance(text := values.get("text"), str):
        return text.strip()
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    if tensors and all(tensor.datatype == "BYTES" for tensor in tensors):
        return tuple((tensor.name, tensor.shape, bytes(tensor.data)) for tensor in tensors)
    return None


def _of_voters(answered: Sequence[Answered], ballots: Sequence[Ballot[Hashable]], label: Hashable) -> Output:
    """The answer of the first member that voted for a label."""
    order = votes.first_voter(ballots, label)
    return next(each.output for each in answered if each.order == order)
