"""Sends the request in a file to a port of loopback, and prints the body of a good answer: a program, so that it can
run in another network than the benchmark does."""

import socket
import sys
from http.client import HTTPException, HTTPResponse
from pathlib import Path

TIMEOUT_S = 30


def main() -> int:
    """Status 1 without a successful answer; the reason is on standard error."""
    port, request = int(sys.argv[1]), Path(sys.argv[2]).read_bytes()
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(request)
            response = HTTPResponse(connection)
            response.begin()
            body = response.read()
    except (OSError, HTTPException) as error:
        print(f"no answer: {error!r}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(body)
    if response.status == 200:
        return 0
    print(f"status {response.status}: {body[:300]!r}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
