"""Certificates of a test authority that trusts only itself."""

import ssl
import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str = "IP:127.0.0.1") -> Path:
    """A key and a self-signed certificate of a name in `folder`."""
    folder.mkdir()
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    names = ["-addext", f"subjectAltName={name}"]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)
    return folder


def server_side(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def client_side(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "cert.pem")
