"""Server certificates, and the roots that verify client certificates."""

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.certificates import CertificateError, PemPair, load_pair, read_pair, read_roots
from adapters.upstreams.dial import client_certificate
from config.schema.config import ListenTls, PoolConfig
from gateway.traffic.fleet.member import FleetError

_log = logging.getLogger(__name__)


class ServerFiles(msgspec.Struct, frozen=True):
    """The contents of the files of `listen.tls`, read at one time and known to be valid together."""

    pair: PemPair
    client_ca: str = ""

    @classmethod
    def read(cls, files: ListenTls) -> "ServerFiles":
        """Read the files. Raises `CertificateError`."""
        return cls(read_pair(files.cert, files.key), read_roots(files.client_ca) if files.client_ca else "")


class ServerTls:
    """Each connection uses the files of the last `load` that succeeded.

    OpenSSL cannot replace the pair of a context in one step, nor drop a root. So each load makes a context of its own,
    and listeners take the newest for each connection.
    """

    def __init__(self, files: ListenTls | None, *protocols: str, lent: ServerFiles | None = None) -> None:
        """`lent` are the files in use by the other processes of this gateway. They replace files that are not valid at
        the first `load`, as for a worker that starts while a certificate is being replaced."""
        self._protocols = protocols or ("http/1.1",)
        self._config = files
        self._lent = lent
        self._context: ssl.SSLContext
        self.files: ServerFiles | None = None
        """The files in use."""
        self.expiry: float | None = None
        """Unix seconds at which the certificate in use expires."""
        self.failures = 0
        """Loads of files that could not be used."""

    @property
    def contexts(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context for a new connection; None without `listen.tls`."""
        return None if self._config is None else lambda: self._context

    def load(self) -> None:
        """Load the files for the connections that follow. On an error the files before stay in use.

        Raises `FleetError`.
        """
        if self._config is None:
            self.files = None
            return
        try:
            self._use(ServerFiles.read(self._config))
        except CertificateError as error:
            self.failures += 1
            if self.files is None and self._lent is not None:
                _log.error("listen.tls: %s: this process uses the certificate of the others", error)
                try:
                    self._use(self._lent)
                except CertificateError as second:
                    raise FleetError(f"listen.tls: {second}") from None
                return
            raise FleetError(f"listen.tls: {error}") from None

    def reload(self, config: ListenTls | None) -> None:
        """Load the files of another configuration. Raises `FleetError`, and changes nothing then."""
        before, self._config = self._config, config
        try:
            self.load()
        except FleetError:
            self._config = before
            raise

    def _use(self, files: ServerFiles) -> None:
        """Raises `CertificateError`, and changes nothing then."""
        if files == self.files:
            return
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.set_alpn_protocols(list(self._protocols))
        if files.client_ca:
            self._verify_clients(made, files.client_ca)
        expiry = load_pair(made, files.pair)
        if self._is_late(expiry):
            raise CertificateError("the certificate has expired")
        self._context, self.files, self.expiry = made, files, expiry

    def _is_late(self, expiry: float | None) -> bool:
        """Whether a certificate has expired, and the one in use has not."""
        if expiry is None or expiry > (now := time.time()):
            return False
        if self.expiry is not None and self.expiry > now:
            return True
        _log.warning("listen.tls: the certificate has expired")
        return False

    def _verify_clients(self, context: ssl.SSLContext, roots: str) -> None:
        assert self._config is not None
        try:
            context.load_verify_locations(cadata=roots)
        except ssl.SSLError as error:
            raise CertificateError(f"{self._config.client_ca}: {error.reason or error}") from None
        context.verify_mode = ssl.CERT_REQUIRED if self._config.client_auth == "required" else ssl.CERT_OPTIONAL


class CertificateMetrics(Collector):
    """Certificates in use: those of the listeners, and those that pools present to their servers."""

    def __init__(self, listeners: Mapping[str, ServerTls], pools: Callable[[], Iterable[PoolConfig]] = tuple) -> None:
        self._listeners = listeners
        self._pools = pools

    def _in_use(self) -> Iterator[tuple[tuple[str, str], float | None, int]]:
        for name, tls in self._listeners.items():
            if tls.files is not None:
                yield (name, ""), tls.expiry, tls.failures
        for pool in self._pools():
            if pool.tls is not None and pool.tls.cert is not None:
                yield ("", pool.name), *client_certificate(pool.tls)

    def collect(self) -> Iterator[Metric]:
        labels = ("listener", "pool")
        expires = GaugeMetricFamily(
            "headrace_certificate_expiry_timestamp_seconds",
            "Unix time at which the certificate in use expires, of a listener or of a pool's client certificate.",
            labels=labels,
        )
        failed = CounterMetricFamily(
            "headrace_certificate_load_failures",
            "Certificate files that could not be used, so that those before stay in use.",
            labels=labels,
        )
        for names, expiry, failures in self._in_use():
            failed.add_metric(names, failures)
            if expiry is not None:
                expires.add_metric(names, expiry)
        yield from (expires, failed)
