"""Certificates for tests: an authority, a server's and a client's, as PEM files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files."""

    authority: str
    cert: str
    key: str
    client_cert: str
    client_key: str

    def client(self, *, own: bool = False) -> ssl.SSLContext:
        """What a client uses that trusts the authority; `own`: and shows its own certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        if own:
            context.load_cert_chain(self.client_cert, self.client_key)
        return context


def make(directory: Path) -> Certificates:
    """Fresh ones."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1", "localhost"), authority.issue_cert("client@example.org")
    found = {name: directory / f"{name}.pem" for name in ("authority", "cert", "key", "client_cert", "client_key")}
    authority.cert_pem.write_to_path(found["authority"])
    for one, cert, key in ((server, "cert", "key"), (client, "client_cert", "client_key")):
        one.cert_chain_pems[0].write_to_path(found[cert])
        # PKCS 8: the only form that Java's clients read
        loaded = load_pem_private_key(one.private_key_pem.bytes(), None)
        found[key].write_bytes(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Certificates(**{name: str(path) for name, path in found.items()})
