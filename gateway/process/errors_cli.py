"""`headrace errors`: what a code of an error means.

`python -m gateway.process.errors_cli` prints docs/errors.md, and a test compares the two.
"""

from collections.abc import Iterator
from typing import Annotated

import typer

from config.problem import closest
from gateway.process.error_codes import CODES, GROUPS, ErrorMeaning

_HEAD = """\
# Error codes

You have a code from a client, the access log or a metric, and want to know what to do:

```console
$ headrace errors queue_timeout
queue_timeout  503  No place became free within `queue.timeout`.
  Add endpoints, or raise the time.
```

`headrace errors` without a code prints all of them. The code of a request is in the access log (`code`), in
`headrace requests show REQUEST_ID`, and in the answer: [how errors look](failures.md#how-errors-look). A code does not
change between releases. This page is generated: `python -m gateway.process.errors_cli > docs/errors.md`.

If the same request may succeed later, the answer has `retry-after` and `x-should-retry: true`. All other errors have
`x-should-retry: false`, because the gateway has already retried what can be retried. Clients of Anthropic's API get 529
in place of 503."""
_NOTES = {
    "The request is wrong": "The client has to change the request. No retry, no fallback and no breaker is involved.",
    "The servers behind the gateway": "Retries, then `fallback`, have been tried before the client sees one of these.",
    "Dead letters of message brokers": "These codes are in [dead letters](bus.md), and in no answer over HTTP.",
    "The admin API": "Other statuses of this API have their HTTP name as the code, such as `not_found`.",
}


def errors(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="All codes when not given.")] = None,
) -> None:
    """Print what the code of an error means, and what to do."""
    if code is None:
        typer.echo("\n".join(line for group in GROUPS.values() for entry in group for line in _lines(entry)))
    elif (entry := CODES.get(code)) is not None:
        typer.echo("\n".join(_lines(entry)))
    else:
        near = closest(code[:128], CODES)
        typer.echo(f"no error has the code {code[:128]!r}{f': did you mean {near}?' if near else ''}", err=True)
        raise typer.Exit(2)


def page() -> str:
    """The page of all codes."""
    return "\n".join(_page())


def _lines(entry: ErrorMeaning) -> Iterator[str]:
    yield f"{entry.name}  {_statuses(entry) or '-'}  {entry.cause}"
    yield f"  {entry.action}"


def _statuses(entry: ErrorMeaning) -> str:
    return ", ".join(map(str, entry.statuses))


def _page() -> Iterator[str]:
    yield _HEAD
    for title, group in GROUPS.items():
        yield f"\n## {title}\n"
        if title in _NOTES:
            yield f"{_NOTES[title]}\n"
        yield "| code | status | cause | action |\n|---|---|---|---|"
        for entry in group:
            yield f"| `{entry.name}` | {_statuses(entry) or '–'} | {entry.cause} | {entry.action} |"


if __name__ == "__main__":
    print(page())
