"""The checked options of `headrace replay`."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from config.schema.config import CompareConfig
from config.schema.copies import TensorComparisonConfig, TextTestConfig
from gateway.features.replay.sending import SendSettings, address_of, speed_of

KEY = "HEADRACE_KEY"

Folder = Annotated[Path | None, typer.Argument(help="Folder of the records: `record.to` of the file.")]
ConfigPath = Annotated[
    Path | None, typer.Option("--config", "-c", help="The YAML file under which requests are decided.")
]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Such as `changed <= 1%`, or `differing <= 1%` with --against. Exit status 1 if unmet. May be repeated.",
    ),
]
KeyEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable with the key of the records. That of the file by default."),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="URL|POOL", help="Send the requests to this gateway, or to a pool of --config, and compare the answers."
    ),
]
Trace = Annotated[
    tuple[str, Path] | None,
    typer.Option(metavar="FORMAT FILE", help="Send the requests of a trace: mooncake, burstgpt or azure."),
]
Export = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="Print the arrivals and lengths as a trace: mooncake.")
]
Key = Annotated[
    str | None, typer.Option(envvar=KEY, help="Key that the requests are sent with. Records have no credentials.")
]
Speed = Annotated[str, typer.Option(help="Times the recorded rate, such as 1 or 10x; or max.")]
Concurrency = Annotated[int, typer.Option(min=1, max=100_000, help="Most requests in flight.")]
Timeout = Annotated[float, typer.Option(min=0.001, help="Seconds until a request is given up.")]
Text = Annotated[str, typer.Option(help="When two texts agree: exact, normalized, or a similarity such as 90%.")]
Rtol = Annotated[float, typer.Option(min=0, max=1, help="Relative tolerance of tensors.")]
Model = Annotated[str, typer.Option(help="Model of the requests of a trace.")]


class Task(NamedTuple):
    """The one task of a command line."""

    folder: Path | None
    config: Path | None
    against: str | None
    trace: tuple[str, Path] | None
    export: str | None
    expect: list[str]

    @property
    def pool(self) -> str | None:
        """The pool of the file to which requests are sent; None for a URL, or if none are sent."""
        return None if self.against is None or "://" in self.against else self.against

    def check(self) -> None:
        """Raises `ValueError` for options that exclude each other, or that are missing."""
        if self.trace is None and self.folder is None:
            raise ValueError("name the folder of the records, or a trace by --trace")
        if self.trace is not None and (self.folder is not None or self.against is None):
            raise ValueError("--trace takes the place of the folder, and needs --against")
        decides = self.config if self.pool is None else None
        if sum(value is not None for value in (decides, self.against, self.export)) != 1:
            raise ValueError("give one of --config (decide), --against (send) and --export")
        if self.pool is not None and self.config is None:
            raise ValueError(
                "--against POOL needs --config, the file with the pool; a URL begins with http:// or https://"
            )
        if self.expect and self.export is not None:
            raise ValueError("--expect needs --config or --against")
        if self.export not in (None, "mooncake"):
            raise ValueError(f"--export is mooncake, got {self.export!r}")


def settings_of(
    task: Task, key: str | None, speed: str, concurrency: int, timeout: float, text: str, rtol: float
) -> SendSettings:
    """The settings of the options. Raises `ValueError`."""
    test = {"edit": text} if text.endswith("%") else {"same": text}
    compare = CompareConfig(
        text=(TextTestConfig.model_validate(test),), tensors=TensorComparisonConfig.model_validate({"rtol": rtol})
    )
    assert task.against is not None
    address = "" if task.pool is not None else address_of(task.against)
    return SendSettings(address, key, speed_of(speed), concurrency, timeout, compare)
