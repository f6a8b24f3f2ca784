"""Explains any model with numbers as outputs: asks it for mixtures of rows, in its own batches beside its callers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from adapters.errors import CallerError, CapacityError, DeadlineError, InferenceError
from adapters.tensors import Inference
from runtimes.tensor import texts
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.deferred_input import is_deferred
from runtimes.tensor.explanations.estimates import ValueMethod
from runtimes.tensor.explanations.explanation import (
    MAX_TARGETS,
    Attributions,
    Floats,
    check_base,
    check_rows,
    check_size,
    check_target,
    target_of,
)
from runtimes.tensor.explanations.games import Game, Games, Tables
from runtimes.tensor.explanations.kernel import KERNEL
from runtimes.tensor.explanations.occlusion import OCCLUSION
from runtimes.tensor.explanations.permutations import PERMUTATIONS
from runtimes.tensor.explanations.row_requests import Inferring, RowCost, RowRequests, late
from runtimes.tensor.explanations.sampling import Masks
from runtimes.tensor.explanations.words import WordGames
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors
from runtimes.tensor.scheduling.intake import Intake

MAX_WAITING: Final = 64
"""Requests that wait for their explanation."""
METHODS: Final[Mapping[str, ValueMethod]] = {method.name: method for method in (PERMUTATIONS, KERNEL, OCCLUSION)}
Numbers = npt.NDArray[np.int64]


class SampledExplainer:
    """One request is explained at a time."""

    memory_bytes = 0

    def __init__(self, config: ModelConfig, output: TensorSpec, scheduler: Inferring, background: Tensors) -> None:
        """`output` is the one that is explained; `background` has the rows of all inputs that are not optional. Raises
        `ModelLoadError`."""
        assert config.explain is not None
        self._config = config
        self._rules = config.explain
        self._output = output
        self._method = method_of(config)
        self.method = self._method.name
        self._requests = RowRequests(config, output, scheduler)
        self._intake = Intake(config)
        self._games: Games = (
            WordGames(config, self._method.most_features)
            if self._rules.features == "words"
            else Tables(config, background)
        )
        if self._games.features > self._method.most_features:
            raise ModelLoadError(
                f"the model has {self._games.features} features, and at most {self._method.most_features} are explained"
                ": for an image, let `patch` have the lengths of a patch"
            )
        self._background = background
        self._base: Floats | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def explain(self, inference: Inference, deadline: float) -> Attributions:
        """See `Explainer`."""
        seed, target = _seed(inference, self._rules.seed), target_of(inference)
        games = await asyncio.to_thread(self._read, inference)
        most = self._planned(games)
        of_output = await self.targets(deadline)
        check_size(_rows(games), 1 if target is not None else _answered(of_output or 1), _width(games))
        if self._waiting >= MAX_WAITING:
            raise CapacityError(f"{MAX_WAITING} explanations of the model wait already.")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise late() from None
        finally:
            self._waiting -= 1
        cost = RowCost()
        try:
            made = [
                await self._explained(game, most[at], target, seed, deadline, cost) for at, game in enumerate(games)
            ]
            return await asyncio.to_thread(self._finished, games, made, cost)
        except InferenceError as error:
            error.device_ms = cost.seconds * 1000
            raise
        finally:
            self._turn.release()

    async def targets(self, deadline: float) -> int | None:
        """See `Explainer`."""
        dims = self._output.dims if self._output.reshape is None else self._output.reshape
        if -1 not in dims:
            return prod(dims)
        return None if self._base is None else len(self._base)

    async def aclose(self) -> None:
        """See `Explainer`."""

    def _read(self, inference: Inference) -> Sequence[Game]:
        """The games of a request. Raises `CallerError`."""
        plain = Inference(inference.model_name, inputs=inference.inputs)
        inputs = self._intake.read(plain).inputs
        for spec in self._config.inputs:
            if spec.allow_ragged_batch and spec.name in inputs:
                raise CallerError(
                    f"The rows of the input `{spec.name}` have lengths of their own, so they cannot be mixed: leave it"
                    " out.",
                    param=spec.name,
                )
        rows: dict[str, Array] = {}
        for name, array in inputs.items():
            if is_deferred(array):
                array = array.content.astype(array.dtype)
            rows[name] = texts.expanded(array)
        return self._games.of(rows)

    def _planned(self, games: Sequence[Game]) -> list[int]:
        """The most coalitions of a row of each game, within the budget. Raises `CallerError`."""
        needs = [game.alone + game.each * self._method.least(game.features) for game in games]
        needed = sum(needs)
        if needed > self._rules.budget:
            raise CallerError(
                f"The explanation of {_rows(games)} rows needs at least {needed} rows of the model, and the budget is"
                f" {self._rules.budget}: send fewer rows, or let the model's configuration have a larger `budget` or a"
                " smaller background."
            )
        spare = (self._rules.budget - needed) // len(games)
        return [(need + spare - game.alone) // game.each for game, need in zip(games, needs, strict=True)]

    async def _explained(
        self, game: Game, most: int, target: int | None, seed: int, deadline: float, cost: RowCost
    ) -> Attributions:
        full = await self._requests.outputs(game.rows, deadline, cost)
        check_rows(full, self._output.name, "row")
        targets = _picks(full, target)
        check_size(game.count, 1 if targets is not None else full.shape[1], game.width)
        base = await self._bases(game, full, targets, deadline, cost)
        full = _picked(full, targets)
        estimate = await asyncio.to_thread(self._method.begin, game.count, game.features, most, seed)
        while (masks := await asyncio.to_thread(estimate.round)) is not None:
            try:
                means = await self._means(game, masks, targets, deadline, cost)
            except DeadlineError:
                if not estimate.is_enough:
                    raise
                break
            await asyncio.to_thread(estimate.add, means, base, full)
        values = await asyncio.to_thread(estimate.values, base, full)
        is_number = self._output.dims in ((), (1,)) or self._output.reshape == ()
        made = Attributions(values, base, full, estimate.method, self._output.name, is_number, seed)
        made.targets = None if is_number else targets
        return made

    def _finished(self, games: Sequence[Game], made: Sequence[Attributions], cost: RowCost) -> Attributions:
        """The answer, checked."""
        for one in made:
            if self._method.is_additive:
                one.check()
            else:
                one.check_finite()
        check_size(_rows(games), made[0].values.shape[1], _width(games))
        whole = self._games.finished(games, made)
        whole.model_rows, whole.device_seconds = cost.rows, cost.seconds
        return whole

    async def _bases(self, game: Game, full: Floats, targets: Numbers | None, deadline: float, cost: RowCost) -> Floats:
        """The mean output without any feature, by row: [rows, targets]."""
        if game.has_own_bases:
            nothing = np.zeros((game.count, game.features), np.bool_)
            return (await self._means(game, nothing, targets, deadline, cost))[:, 0]
        if self._base is None:
            first = await self._requests.outputs(self._background, deadline, RowCost())
            check_base(first, self._output.name)
            self._base = first.mean(axis=0)
        return _picked(np.broadcast_to(self._base, full.shape), targets)

    async def _means(self, game: Game, masks: Masks, targets: Numbers | None, deadline: float, cost: RowCost) -> Floats:
        """The mean output of each coalition of each row: [rows, coalitions, targets]."""
        of = np.repeat(np.arange(game.count), len(masks) // game.count)
        behind = game.mixer.count
        total, size = len(masks) * behind, await asyncio.to_thread(self._requests.batch, game.rows)
        sums: Floats | None = None
        for begin in range(0, total, size):
            end = min(total, begin + size)
            mixed = await asyncio.to_thread(game.mixer.mixed, game.rows, of, masks, begin, end)
            coalitions = np.arange(begin, end) // behind
            outputs = await self._requests.outputs(mixed, deadline, cost)
            outputs = _picked(outputs, None if targets is None else targets[of[coalitions]])
            if sums is None:
                sums = np.zeros((len(masks), outputs.shape[1]))
            await asyncio.to_thread(np.add.at, sums, coalitions, outputs)
        assert sums is not None
        means = (sums / behind).reshape(game.count, -1, sums.shape[1])
        check_rows(means, self._output.name, "mixtures of row")
        return means


def method_of(config: ModelConfig) -> ValueMethod:
    """The method of a configuration, unless the model explains itself."""
    assert config.explain is not None
    return METHODS.get(config.explain.method, PERMUTATIONS)


def _width(games: Sequence[Game]) -> int:
    return max((game.width for game in games), default=0)


def _rows(games: Sequence[Game]) -> int:
    return sum(game.count for game in games)


def _answered(targets: int) -> int:
    """How many of the numbers of an output are explained."""
    return targets if targets <= MAX_TARGETS else 1


def _picks(full: Floats, target: int | None) -> Numbers | None:
    """The number of the output that is explained, by row; None for all of few. Raises `CallerError`."""
    if target is not None:
        check_target(target, full.shape[1])
        return np.full(len(full), target, np.int64)
    return full.argmax(axis=1) if full.shape[1] > MAX_TARGETS else None


def _picked(outputs: Floats, targets: Numbers | None) -> Floats:
    """One number of each row: [rows, 1]; all without targets."""
    return outputs if targets is None else outputs[np.arange(len(outputs)), targets][:, None]


def _seed(inference: Inference, default: int) -> int:
    """The seed of a request. Raises `CallerError`."""
    seed = inference.parameters.get("seed", default)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise CallerError("`seed` is a whole number, from 0.", param="seed")
    return seed
