"""The worker that a copy of an ensemble uses: one process."""

from __future__ import annotations

from runtimes.tensor.ensembles.processes.progress import Progress
from runtimes.tensor.instances.child_process import ChildProcess
from runtimes.tensor.instances.request_worker import RequestWorker


class EnsembleWorker(RequestWorker):
    """The loop's side of one process."""

    progress: Progress | None = None
    """The progress, readable after the end of the process too."""

    def _start_child(self) -> ChildProcess:
        child = super()._start_child()
        self.progress = Progress(child.outputs.fd)
        return child

    def cancel(self, number: int) -> None:
        super().cancel(number)
        if self.progress is not None:
            self.progress.cancel()
