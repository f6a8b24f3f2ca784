"""Server certificates, and the roots that verify client certificates."""

import ssl
from pathlib import Path

from config.schema.config import ListenTls
from gateway.traffic.fleet.member import FleetError


class ServerTls:
    """`context` is None without `listen.tls`. With it, every `load` updates the same context."""

    def __init__(self, files: ListenTls | None, *protocols: str) -> None:
        self._protocols = protocols or ("http/1.1",)
        self.context: ssl.SSLContext | None = None
        self._files = files
        self._client_ca = ""

    def load(self) -> None:
        """Load the files into the context in use, so that the next connection uses a renewed certificate.

        Raises `FleetError`.
        """
        if self._files is None:
            return
        if self.context is None:
            self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.context.set_alpn_protocols(list(self._protocols))
        try:
            if self._files.client_ca is not None:
                required = self._files.client_auth == "required"
                self._load_client_ca(self.context, Path(self._files.client_ca), required=required)
            self.context.load_cert_chain(self._files.cert, self._files.key)
        except (OSError, ssl.SSLError) as error:
            raise FleetError(f"listen.tls: {error}") from None

    def _load_client_ca(self, context: ssl.SSLContext, path: Path, *, required: bool) -> None:
        """Load the roots once. A context cannot drop a root, so a removed root would stay trusted."""
        roots = path.read_text("ascii", "ignore")  # comments may be in any encoding
        if self._client_ca and roots != self._client_ca:
            raise FleetError("listen.tls.client_ca: a change of the file needs a restart")
        if not self._client_ca:
            context.load_verify_locations(cadata=roots)
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            self._client_ca = roots
