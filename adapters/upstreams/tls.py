"""TLS contexts for `https://` endpoints."""

import ssl
from functools import lru_cache
from pathlib import Path

from config.schema.config import PoolConfig, UpstreamTls

FileTimes = tuple[int, ...]


def file_times(tls: UpstreamTls | None) -> FileTimes:
    """Return the modification times of the TLS files: a renewed certificate has the same path."""
    paths = [path for path in (tls.ca, tls.cert, tls.key) if path] if tls is not None else []
    return tuple(Path(path).stat().st_mtime_ns if Path(path).exists() else 0 for path in paths)


def context(pool: PoolConfig, spoken: str) -> ssl.SSLContext:
    """Return the TLS context of a pool, one for each protocol (`spoken`), since a context holds the ALPN protocol.

    Raises `OSError` or `ssl.SSLError` if the pool's files cannot be used.
    """
    return _context(pool.tls or UpstreamTls(), file_times(pool.tls), spoken)


@lru_cache(maxsize=32)
def _context(config: UpstreamTls, times: FileTimes, spoken: str) -> ssl.SSLContext:
    """Create a context. All endpoints share it: reading the system's roots takes tens of milliseconds."""
    made = ssl.create_default_context(cafile=config.ca)
    if config.cert is not None:
        made.load_cert_chain(config.cert, config.key)
    return made
