"""The node `ensemble`: several members answer at once, and their answers become one."""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from adapters.dataflow import all_ended
from adapters.errors import InferenceError, StepFailed
from adapters.tensors import Tensor
from config.schema.pipelines.pipeline import Combine, EnsembleConfig
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope, total
from gateway.features.pipelines.steps import run_part
from gateway.features.pipelines.values import UnusableValueError, Value, array_of, tensor_from
from policies.pipelines import votes
from policies.pipelines.votes import Ballot, Voter, quorum, units

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


class EnsembleMember(NamedTuple):
    """A node, its name, and its weight in units of `policies.pipelines.votes`."""

    name: str
    node: PipelineNode
    weight: int


class EnsembleNode:
    """Waits for all members, but no longer than needed.

    It ends once the result cannot change (a vote that is decided, the first answer), and after `within` as soon as
    `need` members have answered. A member that fails, or whose answer cannot be combined, counts as absent. Members
    that still run are then cancelled.
    """

    def __init__(self, config: EnsembleConfig, nodes: Sequence[PipelineNode]) -> None:
        self._members = [
            EnsembleMember(member.label, node, units(member.weight))
            for member, node in zip(config.members, nodes, strict=True)
        ]
        self._config = config

    async def run(self, scope: StepScope) -> Output:
        round_ = _Round(self._members, self._config, scope)
        try:
            await round_.run()
        finally:
            await round_.end()
        return round_.result()

    def bound(self, estimate: Estimate) -> Bound:
        return total((member.node for member in self._members), estimate)


class _Round:
    """The members of one request."""

    def __init__(self, members: Sequence[EnsembleMember], config: EnsembleConfig, scope: StepScope) -> None:
        self._members = members
        self._config = config
        self._scope = scope
        self._answered: list[Answered] = []
        self._error: InferenceError | None = None
        self._running = {
            asyncio.ensure_future(run_part(member.node, scope, member.name, is_read=True)): index
            for index, member in enumerate(members)
        }
        self._result: Output | None = None

    async def run(self) -> None:
        """Wait until the result is certain. Raises the first failure if too few members can answer."""
        clock, within, need = self._scope.clock, self._config.within, self._config.least
        end, late = None if within is None else clock() + within, False
        while self._running and self._result is None:
            if late and self._combine():
                return
            timeout = None if end is None or late else max(end - clock(), 0)
            done, _ = await asyncio.wait(self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            late = late or not done  # not by the clock, which a timer may precede by its resolution
            for task in done:
                self._take(task, self._running.pop(task))
            if quorum(len(self._answered), len(self._running), need) == "lost":
                raise self._failure()
            if done:
                self._settle_early()
        if self._result is None and not self._combine():
            raise self._failure()

    def _take(self, task: asyncio.Future[Output], index: int) -> None:
        member, error = self._members[index], task.exception()
        if error is None:
            self._answered.append(Answered(member.name, task.result(), member.weight, index))
        elif not isinstance(error, InferenceError):
            raise error
        elif self._error is None:
            self._error = error

    def _settle_early(self) -> None:
        """End the round if no further answer can change its result."""
        if len(self._answered) < self._config.least:
            return
        missing = [Voter(self._members[index].weight, index) for index in self._running.values()]
        self._result = settled(self._config.combine, self._answered, missing)

    def _combine(self) -> bool:
        """Combine the answers, without those that cannot be; False if too few are left."""
        while len(self._answered) >= self._config.least:
            try:
                self._result = combined(self._config, self._answered)
                return True
            except UnfitError as error:
                fault = StepFailed(f"The answers cannot be combined: {error}.", step=self._scope.path)
                self._error = self._error or fault
                left = [each for each in self._answered if each.member != error.member]
                if len(left) == len(self._answered):
                    raise fault from None
                self._answered = left
        return False

    def _failure(self) -> InferenceError:
        message = f"{len(self._answered)} members answered, and {self._config.least} are needed."
        return self._error or StepFailed(message, step=self._scope.path)

    async def end(self) -> None:
        """Cancel the members that still run, and wait for their end."""
        for task in self._running:
            task.cancel()
        try:
            await all_ended(self._running)
        finally:
            for task in self._running:
                if not task.cancelled():
                    task.exception()  # mark it as retrieved

    def result(self) -> Output:
        """The combined output."""
        assert self._result is not None
        return self._result
