"""Requests of one model of this server for another: the steps of an ensemble, and calls by a model's own code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from math import inf
from typing import Protocol

from adapters.tensors import Inference, Inferred, Parameters
from runtimes.tensor.ensembles.processes.messages import MemberRun
from runtimes.tensor.models.served_model import ServedModel


@dataclass(slots=True)
class Computed(Inferred):
    """A response. `device_seconds` is its time on the model's device: its share of a batch, or for one of several
    responses the time since the previous response.

    `final`: no other follows. The last response of a decoupled model is marked only if the model itself
    has marked it.
    """

    device_seconds: float = 0.0
    final: bool = True


class Calls(Protocol):
    """Runs requests on models of this server, with their queues, caches and statistics.

    A caller that has leased the version passes it as `served`; otherwise each request leases its own, and waits for a
    version that must be loaded first. All methods raise `InferenceError`.
    """

    def lease(self, model: str, version: str, parameters: Parameters) -> ServedModel | None:
        """Lease a version in service, to be released once. None if it must be loaded first, or is unavailable.

        `parameters` name the sequence that the requests belong to, if any.
        """
        ...

    async def infer(self, inference: Inference, deadline: float = inf, served: ServedModel | None = None) -> Computed:
        """One request, one response. Cancelling withdraws it. `deadline` is loop time."""
        ...

    @property
    def is_observed(self) -> bool:
        """Whether requests are traced or logged one by one."""
        ...

    def executed(self, model: str, version: str, run: MemberRun) -> None:
        """Count an execution of a model in a process of an ensemble."""
        ...

    def stream(
        self, inference: Inference, deadline: float = inf, served: ServedModel | None = None
    ) -> AsyncGenerator[Computed, None]:
        """Run a request with any number of responses. The caller must close the iterator."""
        ...
