"""Explains any model with numbers as outputs: asks it for mixtures of rows, in its own batches beside its callers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from adapters.errors import CallerError, CapacityError, DeadlineError
from adapters.tensors import Inference, RequestedOutput, Tensor
from runtimes.tensor import texts
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.deferred_input import is_deferred
from runtimes.tensor.explanations import sampling
from runtimes.tensor.explanations.explanation import Attributions, Floats, check_base, check_rows, numbers
from runtimes.tensor.explanations.sampling import Mixer, SamplingPlan
from runtimes.tensor.interfaces import Array, Tensors
from runtimes.tensor.requests.open_request import tensor_of
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.outlet import UnfinishedOutputs

MAX_BYTES: Final = 8 << 20
"""Bytes of the rows that are sent to the model at once."""
MAX_WAITING: Final = 64
"""Requests that wait for their explanation."""


class Inferring(Protocol):
    """The scheduler of the model: see `models.served_model.ModelScheduler`."""

    def infer(self, inference: Inference, deadline: float) -> asyncio.Future[list[Tensor]]: ...


@dataclass(slots=True)
class _Cost:
    """What a request has used."""

    rows: int = 0
    seconds: float = 0.0


class SampledExplainer:
    """One request is explained at a time, and one batch of it is computed at a time, so that callers of the model wait
    for one batch at most."""

    method = "permutation"
    memory_bytes = 0

    def __init__(self, config: ModelConfig, output: TensorSpec, scheduler: Inferring, background: Tensors) -> None:
        """`output` is the one that is explained; `background` has the rows of all inputs that are not optional."""
        assert config.explain is not None
        self._config = config
        self._rules = config.explain
        self._output = output
        self._scheduler = scheduler
        self._intake = Intake(config)
        places, self._features = sampling.places_of([(name, rows.shape[1:]) for name, rows in background.items()])
        self._mixer = Mixer(background, places)
        self._base: Floats | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def explain(self, inference: Inference, deadline: float) -> Attributions:
        """See `Explainer`."""
        seed = _seed(inference, self._rules.seed)
        rows = await asyncio.to_thread(self._read, inference)
        count = len(next(iter(rows.values())))
        planned = sampling.plan(
            count, self._features, self._mixer.count, self._rules.budget, own_bases=self._has_own_bases(rows)
        )
        if not planned.rounds:
            raise CallerError(
                f"The explanation of {count} rows needs at least {planned.needed} rows of the model, and the budget is"
                f" {self._rules.budget}: send fewer rows, or let the model's configuration have a larger `budget` or a"
                " smaller background."
            )
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
        try:
            return await self._explained(rows, count, planned, seed, deadline)
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

    def _read(self, inference: Inference) -> dict[str, Array]:
        """The rows of a request. Raises `CallerError`."""
        plain = Inference(inference.model_name, inputs=inference.inputs)
        inputs = self._intake.read(plain).inputs
        for spec in self._config.inputs:
            if spec.allow_ragged_batch and spec.name in inputs:
                raise CallerError(
                    f"The rows of the input `{spec.name}` have lengths of their own, so they cannot be mixed: leave it"
                    " out.",
                    param=spec.name,
                )
        rows = {}
        for name, array in inputs.items():
            if is_deferred(array):
                array = array.content.astype(array.dtype)
            rows[name] = texts.expanded(array)
        return rows

    async def _explained(
        self, rows: Tensors, count: int, planned: SamplingPlan, seed: int, deadline: float
    ) -> Attributions:
        cost = _Cost()
        full = await self._outputs(rows, deadline, cost)
        check_rows(full, self._output.name, "row")
        base = await self._bases(rows, full, deadline, cost)
        parts, done = np.zeros((count, full.shape[1], self._features)), 0
        rounds = self._rounds(planned, count, seed)
        while (coalitions := await asyncio.to_thread(next, rounds, None)) is not None:
            orders, masks = coalitions
            try:
                middle = await self._means(rows, count, masks, full.shape[1], deadline, cost)
            except DeadlineError:
                if not done:
                    raise
                break  # fewer permutations are an answer too, and their parts add up as well
            await asyncio.to_thread(_add, parts, orders, middle, base, full)
            done += 1
        is_number = self._output.dims in ((), (1,)) or self._output.reshape == ()
        made = Attributions(
            parts / max(1, done), base, full, "exact" if planned.is_exact else self.method, self._output.name,
            is_number, seed, cost.rows, cost.seconds,
        )  # fmt: skip
        await asyncio.to_thread(made.check)
        return made

    def _has_own_bases(self, rows: Tensors) -> bool:
        """Whether a request has optional inputs. They have no background, so each row's base has the row's values."""
        return any(name not in self._mixer.background for name in rows)

    async def _bases(self, rows: Tensors, full: Floats, deadline: float, cost: _Cost) -> Floats:
        """The mean output without any feature, by row: [rows, targets]."""
        if self._has_own_bases(rows):
            nothing = np.zeros((len(full), self._features), np.bool_)
            return (await self._means(rows, len(full), nothing, full.shape[1], deadline, cost))[:, 0]
        if self._base is None:
            first = await self._outputs(self._mixer.background, deadline, _Cost())
            check_base(first, self._output.name)
            self._base = first.mean(axis=0)
        return np.broadcast_to(self._base, full.shape)

    def _rounds(
        self, planned: SamplingPlan, count: int, seed: int
    ) -> Iterator[tuple[list[npt.NDArray[np.int64]] | None, sampling.Masks]]:
        """The permutations of each row, None for all coalitions; and the coalitions of all rows, one row after
        another."""
        if planned.is_exact:
            yield None, np.tile(sampling.all_coalitions(self._features), (count, 1))
            return
        random = np.random.default_rng(seed)
        for _ in range(planned.rounds):
            orders = [random.permutation(self._features) for _ in range(count)]
            yield orders, np.concatenate([sampling.path(order) for order in orders])

    async def _means(
        self, rows: Tensors, count: int, masks: sampling.Masks, targets: int, deadline: float, cost: _Cost
    ) -> Floats:
        """The mean output of each coalition of each row: [rows, coalitions, targets]."""
        of = np.repeat(np.arange(count), len(masks) // count)
        total, size = len(masks) * self._mixer.count, self._batch(rows)
        sums = np.zeros((len(masks), targets))
        for begin in range(0, total, size):
            end = min(total, begin + size)
            mixed = await asyncio.to_thread(self._mixer.mixed, rows, of, masks, begin, end)
            outputs = await self._outputs(mixed, deadline, cost)
            await asyncio.to_thread(np.add.at, sums, np.arange(begin, end) // self._mixer.count, outputs)
        means = (sums / self._mixer.count).reshape(count, -1, targets)
        check_rows(means, self._output.name, "mixtures of row")
        return means

    def _batch(self, rows: Tensors) -> int:
        """The rows that are sent at once."""
        row = sum(array.nbytes // len(array) for array in rows.values())
        return max(1, min(self._config.max_batch_size, MAX_BYTES // max(1, row)))

    async def _outputs(self, rows: Tensors, deadline: float, cost: _Cost) -> Floats:
        """The model's outputs for rows: [rows, targets]."""
        count = len(next(iter(rows.values())))
        parts = []
        for begin in range(0, count, size := self._batch(rows)):
            part = {name: array[begin : begin + size] for name, array in rows.items()}
            sent = await asyncio.to_thread(self._inference, part)
            pending = self._scheduler.infer(sent, deadline)
            outputs = await within(deadline, pending)
            cost.seconds += getattr(pending, "device_seconds", 0.0)
            cost.rows += min(size, count - begin)
            parts.append(await asyncio.to_thread(numbers, outputs[0]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _inference(self, rows: Tensors) -> Inference:
        return Inference(
            self._config.name,
            inputs=[
                tensor_of(spec.name, spec.datatype, np.ascontiguousarray(rows[spec.name], DTYPES[spec.datatype]))
                for spec in self._config.inputs
                if spec.name in rows
            ],
            outputs=[RequestedOutput(self._output.name)],
        )


def _add(parts: Floats, orders: list[npt.NDArray[np.int64]] | None, middle: Floats, base: Floats, full: Floats) -> None:
    """Add the values of one round to `parts`: [rows, targets, features]."""
    for row, values in enumerate(middle):
        if orders is None:
            parts[row] += sampling.exact_values(values, base[row], full[row])
        else:
            parts[row] += sampling.path_values(orders[row], values, base[row], full[row])


async def within(deadline: float, pending: asyncio.Future[list[Tensor]]) -> list[Tensor]:
    """The outputs of a request, or `DeadlineError` at its deadline, which withdraws it."""
    try:
        async with asyncio.timeout_at(deadline):
            outputs = await pending
            return await outputs.finished() if isinstance(outputs, UnfinishedOutputs) else outputs
    except TimeoutError:
        raise late() from None


def late() -> DeadlineError:
    """The error of an explanation without time for its least part."""
    return DeadlineError("The time for the explanation has ended.")


def _seed(inference: Inference, default: int) -> int:
    """The seed of a request. Raises `CallerError`."""
    seed = inference.parameters.get("seed", default)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise CallerError("`seed` is a whole number, from 0.", param="seed")
    return seed
