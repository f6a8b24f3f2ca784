"""`python -m tests.hostile.corpus URL`: replay the corpus against a server."""

import argparse
import asyncio
import sys
from urllib.parse import urlsplit

from tests.hostile.corpus import over_http1, over_http2
from tests.hostile.corpus.cases import cases

PLAYS = {"http1": over_http1.play, "http2": over_http2.play}
AT_ONCE = 8


async def replay(protocol: str, host: str, port: int) -> dict[str, str]:
    """The cases that the server fails, and why."""
    places, failed = asyncio.Semaphore(AT_ONCE), {}

    async def one(i: int) -> None:
        case = cases(protocol)[i]
        async with places:
            try:
                why = await PLAYS[protocol](case, host, port)
            except OSError as error:
                why = f"no connection: {error}"
            if why:
                failed[case.id] = why

    await asyncio.gather(*[one(i) for i in range(len(cases(protocol)))])
    return failed


def main() -> int:
    """The exit status: 1 when the server fails a case."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.corpus", description=__doc__)
    parser.add_argument("url", help="http://HOST:PORT of a server that you may attack")
    parser.add_argument("--protocol", choices=sorted(PLAYS), help="one of them; both when absent")
    arguments = parser.parse_args()
    parts = urlsplit(arguments.url)
    status = 0
    for protocol in [arguments.protocol] if arguments.protocol else sorted(PLAYS):
        failed = asyncio.run(replay(protocol, parts.hostname or "", parts.port or 80))
        for name, why in sorted(failed.items()):
            print(f"{protocol} {name}: {why}")
        total = len(cases(protocol))
        print(f"{protocol}: {total - len(failed)} of {total} cases pass")
        status |= bool(failed)
    return status


if __name__ == "__main__":
    sys.exit(main())
