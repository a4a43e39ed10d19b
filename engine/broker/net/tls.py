"""TLS of the listeners, and of our own connections to name servers, by Apache's keys (TlsSystemConfig, TlsHelper).

Apache takes them as properties of the JVM; here they stand in broker.conf, or in the file that `tls.config.file`
names, which then wins, as it does there. Two things are stricter: a word that is no mode is an error and not the
default, and a client's certificate is never believed without an authority to check it (`tls.server.trustCertPath`, or
with `tls.server.authClient=true` the system's).
"""

from __future__ import annotations

import enum
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.broker_conf.properties import read_strictly
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, from_os_error

CONFIG_FILE = "tls.config.file"
DEFAULT_FILE = "/etc/rocketmq/tls.properties"
TEST_MODE = "tls.test.mode.enable"
_KEYS = {
    "tls.server.mode": "mode",
    "tls.enable": "client",
    "tls.server.certPath": "cert",
    "tls.server.keyPath": "key",
    "tls.server.keyPassword": "key_password",
    "tls.server.need.client.auth": "client_auth",
    "tls.server.authClient": "auth_client",
    "tls.server.trustCertPath": "trust",
    "tls.client.certPath": "client_cert",
    "tls.client.keyPath": "client_key",
    "tls.client.keyPassword": "client_key_password",
    "tls.client.authServer": "auth_server",
    "tls.client.trustCertPath": "client_trust",
}
KEYS = frozenset(_KEYS) | {CONFIG_FILE, TEST_MODE}
"""The keys of a broker's properties file that `TlsSettings.of` knows."""
_NOT_IN_FILE = ("tls.server.mode", "tls.enable")
_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


class TlsMode(enum.Enum):
    """Who is served: only plain text, both (the first byte of a connection decides), only TLS."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """See the module. Paths are of PEM files, "" for none.

    Attributes:
        client_auth: none, optional or require.
        client: whether our own connections use TLS.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    cert: str = ""
    key: str = ""
    key_password: str = ""
    client_auth: str = "none"
    auth_client: bool = False
    trust: str = ""
    client: bool = False
    client_cert: str = ""
    client_key: str = ""
    client_key_password: str = ""
    auth_server: bool = False
    client_trust: str = ""

    @classmethod
    def of(cls, other: Mapping[str, str], **changes: str | None) -> TlsSettings:
        """From the keys of a broker's properties file; `changes`, by field, win, None among them: not given.

        Raises:
            InvalidArgument: a value that makes no sense. StorageError: a named file can't be read.
        """
        entries = {key: value.strip() for key, value in other.items() if key in KEYS}
        file = entries.pop(CONFIG_FILE, None)
        if file is not None or os.path.exists(DEFAULT_FILE):
            more = _properties(file or DEFAULT_FILE)
            entries.update(
                (key, value.strip()) for key, value in more.items() if key in KEYS and key not in _NOT_IN_FILE
            )
        test_mode = entries.pop(TEST_MODE, "false").lower() == "true"
        fields: dict[str, Any] = {_KEYS[key]: value for key, value in entries.items()}
        fields.update((name, value) for name, value in changes.items() if value is not None)
        base = cls()
        for name, value in fields.items():
            if isinstance(getattr(base, name), bool):
                fields[name] = value.lower() == "true"
        try:
            fields["mode"] = TlsMode(fields.get("mode", base.mode.value).lower())
        except ValueError:
            raise InvalidArgument(
                f"tls.server.mode = {fields['mode']!r}: must be disabled, permissive or enforcing"
            ) from None
        made = replace(base, **fields)
        if made.client_auth.lower() not in _AUTH:
            raise InvalidArgument(
                f"tls.server.need.client.auth = {made.client_auth!r}: must be none, optional or require"
            )
        if test_mode and not made.cert:
            raise InvalidArgument(f"{TEST_MODE} = true: rstore makes no test certificate; set tls.server.certPath")
        return made

    @property
    def demands_certificates(self) -> bool:
        """Whether who connects by TLS must show a certificate that is trusted."""
        return self.client_auth.lower() == "require"

    def master_context(self) -> ssl.SSLContext:
        """What a master's replication service uses: what listeners do.

        Raises:
            InvalidArgument: as `server_context`; there is no certificate, or TLS is disabled. StorageError.
        """
        context = self.server_context()
        if context is None:
            what = "without a certificate" if self.mode is not TlsMode.DISABLED else "while TLS is disabled"
            raise InvalidArgument(f"TLS of replication {what}", hint="set --tls-cert and --tls-key")
        return context

    def slave_context(self) -> ssl.SSLContext:
        """What a slave uses to its master, whose certificate is always checked, the name of its host, too.

        It trusts tls.client.trustCertPath, else tls.server.trustCertPath, else the system's authorities. It shows
        tls.client.certPath, else the server's certificate, else none.

        Raises:
            InvalidArgument: files that hold no certificate or key. StorageError: a file can't be read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust = self.client_trust or self.trust
        if trust:
            _load_trusted(context, trust)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self.client_cert:
            _load_own(context, self.client_cert, self.client_key, self.client_key_password)
        elif self.cert:
            _load_own(context, self.cert, self.key, self.key_password)
        return context

    def server_context(self) -> ssl.SSLContext | None:
        """What listeners use; None where no connection can be TLS.

        Raises:
            InvalidArgument: files that hold no certificate or key, or not of each other; nothing to enforce TLS with.
            StorageError: a file can't be read.
        """
        if self.mode is TlsMode.DISABLED:
            return None
        if not self.cert:
            if self.mode is TlsMode.ENFORCING or self.key:
                raise InvalidArgument("TLS without a certificate", hint="set tls.server.certPath or --tls-cert")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_own(context, self.cert, self.key, self.key_password)
        wanted = _AUTH[self.client_auth.lower()]
        if wanted is not ssl.CERT_NONE:
            if self.trust:
                _load_trusted(context, self.trust)
            elif self.auth_client:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            else:
                raise InvalidArgument(
                    "client certificates are required, but no trusted certificates are set",
                    hint="set tls.server.trustCertPath or --tls-ca",
                )
            context.verify_mode = wanted
        return context

    def client_context(self) -> ssl.SSLContext | None:
        """What our own connections use; None: plain text. Raises as `server_context`."""
        if not self.client:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # Apache's clients don't either
        if not self.auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif self.client_trust:
            _load_trusted(context, self.client_trust)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self.client_cert:
            _load_own(context, self.client_cert, self.client_key, self.client_key_password)
        return context


def _properties(path: str) -> dict[str, str]:
    try:
        return read_strictly(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise from_os_error(error, "reading TLS settings", path) from None
    except UnicodeDecodeError as error:
        raise InvalidArgument("the settings are not UTF-8 text", path=path, offset=error.start) from None
    except InvalidArgument as error:
        raise InvalidArgument(error.message, path=path, hint=error.hint) from None


def _demand_readable(path: str, what: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise from_os_error(error, f"reading {what}", path) from None


def _load_own(context: ssl.SSLContext, cert: str, key: str, password: str) -> None:
    _demand_readable(cert, "the certificate")
    if key:
        _demand_readable(key, "the key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except ssl.SSLError as error:
        raise InvalidArgument(f"not a PEM certificate: {_why(error)}", path=cert) from None
    try:
        # A password is always given: OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key or None, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgument(
            f"not a PEM key of {cert}, or a wrong password: {_why(error)}",
            path=key or cert,
            hint=None if key else "the key is read from the certificate's file; tls.server.keyPath sets another one",
        ) from None


def _load_trusted(context: ssl.SSLContext, path: str) -> None:
    _demand_readable(path, "the trusted certificates")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise InvalidArgument(f"not PEM certificates: {_why(error)}", path=path) from None


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error).replace("_", " ").lower()
