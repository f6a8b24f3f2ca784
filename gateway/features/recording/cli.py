"""`headrace record`: lists recorded segments, and changes the key that encrypts their keys."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gateway.auth.terminal import print_status, stop
from gateway.features.recording.entries import EntriesFrame, PolicyFrame, decode
from gateway.features.recording.segments import (
    CONTENTS,
    ENTRIES,
    POLICY,
    RecordError,
    RecordKey,
    SegmentReader,
    rewrap,
    segments,
)
from gateway.terminal import plain, show

app = typer.Typer(name="record", help="List recorded traffic, and rotate its key.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the records: `record.to` of the file.")]


@app.command("list")
def list_segments(
    folder: Folder,
    key_env: Annotated[str, typer.Option(metavar="NAME", help="Environment variable with the key.")] = "RECORD_KEY",
) -> None:
    """List the segments: start, requests, bytes, state. Exit status 1 if one cannot be read."""
    table = Table("segment", "start", "share", "requests", "bytes", "state")
    failed = False
    key = _key(key_env)
    for path in segments(folder):
        start, share, count, state = "–", "–", 0, "closed"
        try:
            reader = SegmentReader(path, key)
            for kind, data in reader.frames(frozenset({CONTENTS})):
                if kind == POLICY:
                    policy = decode(data, PolicyFrame)
                    start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(policy.started))
                    share = f"{policy.share:.3%}"
                elif kind == ENTRIES:
                    count += len(decode(data, EntriesFrame).entries)
            if not reader.is_closed:
                state = f"not closed, {reader.torn} bytes torn"
        except RecordError as error:
            state, failed = str(error), True
        table.add_row(plain(path.stem), start, share, f"{count:,}", f"{path.stat().st_size:,}", plain(state))
    show(table)
    raise typer.Exit(1 if failed else 0)


@app.command()
def rotate(
    folder: Folder,
    old_env: Annotated[str, typer.Option(metavar="NAME", help="Environment variable with the present key.")],
    new_env: Annotated[str, typer.Option(metavar="NAME", help="Environment variable with the new key.")],
) -> None:
    """Encrypt the key of each segment under a new key. The segments themselves do not change."""
    old, new = _key(old_env), _key(new_env)
    failed = 0
    for path in segments(folder):
        try:
            rewrap(path, old, new)
        except (RecordError, OSError) as error:
            print_status(str(error))
            failed += 1
    print_status(f"{len(segments(folder)) - failed} segments have the new key")
    raise typer.Exit(1 if failed else 0)


def _key(variable: str) -> RecordKey:
    secret = os.environ.get(variable, "")
    if not secret:
        stop(f"the environment variable {variable}, which has the key of the records, is not set")
    try:
        return RecordKey(secret)
    except RecordError as error:
        stop(str(error))
