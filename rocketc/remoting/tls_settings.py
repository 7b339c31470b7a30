"""The settings of TLS, under RocketMQ's names: those of the broker, and those of the file tls.properties.

Source: RocketMQ TlsSystemConfig, TlsHelper.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rocketc.config import properties

DEFAULT_FILE = "/etc/rocketmq/tls.properties"
_E = TypeVar("_E", bound=enum.Enum)


class TlsMode(enum.Enum):
    """What a server does with TLS connections, and with plain ones."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether a server asks clients for certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True)
class Identity:
    """The certificate of one side, and what it accepts from the other one. The password is in no text of repr().

    key_path, cert_path  files in PEM; "" if there are none
    is_checked           the certificate of the other side is checked
    trust_path           certificates in PEM that it is checked against; "": those of the system
    """

    key_path: str = ""
    cert_path: str = ""
    key_password: str = field(default="", repr=False)
    is_checked: bool = False
    trust_path: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.key_path, self.cert_path, self.trust_path) if path)


_PLAIN = Identity()
FILE_NAMES = frozenset(
    {
        "tls.test.mode.enable",
        "tls.server.need.client.auth",
        *(f"tls.server.{name}" for name in ("keyPath", "certPath", "keyPassword", "authClient", "trustCertPath")),
        *(f"tls.client.{name}" for name in ("keyPath", "certPath", "keyPassword", "authServer", "trustCertPath")),
    }
)  # the settings that are in the file


@dataclass(frozen=True)
class TlsSettings:
    """The settings of one process.

    mode           of its servers
    is_test        servers use a certificate that is made for this process, and clients accept each certificate
    client_auth    of its servers
    is_client_tls  its own connections, for example to name servers, use TLS
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    is_test: bool = True
    client_auth: ClientAuth = ClientAuth.NONE
    is_client_tls: bool = False
    server: Identity = _PLAIN
    client: Identity = _PLAIN

    @property
    def is_mutual(self) -> bool:
        """Whether only clients with a certificate that this server trusts get through."""
        is_checked = self.server.is_checked and not self.is_test
        return self.mode is TlsMode.ENFORCING and self.client_auth is ClientAuth.REQUIRE and is_checked


def tls_settings(mode: str = "permissive", enable: str | None = None, config_file: str = DEFAULT_FILE) -> TlsSettings:
    """Return the settings, with those of a file.

    mode         tls.server.mode
    enable       tls.enable; None: "true" if the mode is enforcing
    config_file  tls.config.file. If the default file does not exist, there are no other settings
    Raises ValueError with the setting and the allowed values, or if the file cannot be read.

    >>> tls_settings("enforcing", config_file="").is_client_tls
    True
    """
    found: Mapping[str, str] = {}
    if config_file and (config_file != DEFAULT_FILE or os.path.exists(config_file)):
        try:
            with open(config_file, encoding="iso-8859-1", newline="") as file:
                text = file.read()
        except OSError as error:
            raise ValueError(f"{config_file}: {error.strerror}; it is the file of tls.config.file") from None
        found = dict(properties(text))
    try:
        return _of(mode, enable, found)
    except ValueError as error:
        raise ValueError(f"{config_file}: {error}" if found else str(error)) from None


def _of(mode: str, enable: str | None, found: Mapping[str, str]) -> TlsSettings:
    server_mode = _word(TlsMode, "tls.server.mode", mode)
    server = _identity(found, "tls.server", "tls.server.authClient")
    client = _identity(found, "tls.client", "tls.client.authServer")
    test = found.get("tls.test.mode.enable")
    if test is None:  # RocketMQ would ignore the files
        is_test = not (server.paths or client.paths or server.is_checked or client.is_checked)
    else:
        is_test = _truth("tls.test.mode.enable", test)
    auth = _word(ClientAuth, "tls.server.need.client.auth", found.get("tls.server.need.client.auth", "none"))
    if auth is ClientAuth.REQUIRE and not server.is_checked and (test is None or not is_test):
        raise ValueError(
            "tls.server.need.client.auth=require without tls.server.authClient=true would accept each certificate; "
            "set both, and tls.server.trustCertPath"
        )
    is_client = server_mode is TlsMode.ENFORCING if enable is None else _truth("tls.enable", enable)
    return TlsSettings(server_mode, is_test, auth, is_client, server, client)


def _identity(found: Mapping[str, str], prefix: str, check: str) -> Identity:
    def text(name: str) -> str:
        return found.get(f"{prefix}.{name}", "").strip()

    return Identity(
        text("keyPath"),
        text("certPath"),
        found.get(f"{prefix}.keyPassword", ""),
        _truth(check, found.get(check, "false")),
        text("trustCertPath"),
    )


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{name} is {text[:40]!r}; allowed are true and false")
    return text.strip().lower() == "true"


def _word(kind: type[_E], name: str, text: str) -> _E:
    try:
        return kind(text.strip().lower())
    except ValueError:
        allowed = ", ".join(str(one.value) for one in kind)
        raise ValueError(f"{name} is {text[:40]!r}; use one of {allowed}") from None
