"""The options of commands that connect to brokers and name servers: an account that signs, and TLS."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rocketc.cli.output import note

if TYPE_CHECKING:
    from rocketc.client.security import Credentials, Tls

SECRET_KEY = "ROCKETC_SECRET_KEY"
KEY_PASSWORD = "ROCKETC_TLS_KEY_PASSWORD"


@dataclass(frozen=True)
class Security:
    """How a command connects; the arguments of Admin with these names."""

    credentials: Credentials | None = None
    tls: bool | Tls = False


def security_options() -> list[click.Parameter]:
    """Return the options. click lists them from the last to the first."""

    def option(name: str, about: str, metavar: str | None = None) -> click.Option:
        if metavar is None:
            return click.Option([name], is_flag=True, help=about)
        return click.Option([name], metavar=metavar, type=click.Path() if metavar == "FILE" else str, help=about)

    return [
        option("--tls-any-host", "Accept a certificate for another host. A server in the middle can use that."),
        option("--tls-key", f"The key of --tls-cert; its password, if any: {KEY_PASSWORD}.", "FILE"),
        option("--tls-cert", "Show this certificate to servers that want one (mutual TLS).", "FILE"),
        option("--tls-ca", "Authorities of the servers in PEM. Default: those of the system.", "FILE"),
        option("--tls", "Use TLS. The other --tls options imply it.", None),
        option("--credentials", "Sign requests: a file with accessKey and secretKey, as tools.yml.", "FILE"),
        option("--access-key", f"Sign requests. Its secret is in the variable {SECRET_KEY}.", "KEY"),
    ]


SECURITY_NAMES = ("access_key", "credentials", "tls", "tls_ca", "tls_cert", "tls_key", "tls_any_host")


def with_security(run: Callable[..., Any]) -> Callable[..., Any]:
    """Add security_options() to a command that has other options: they are the last ones of its help."""
    run.__click_params__ = [*security_options(), *getattr(run, "__click_params__", [])]  # type: ignore[attr-defined]
    return run


def take_security(options: dict[str, Any], environ: Mapping[str, str] = os.environ) -> Security:
    """Take the values of security_options() out of the options of a command. Raises click.UsageError and OSError.

    >>> take_security({"access_key": "operators", "tls": True}, {"ROCKETC_SECRET_KEY": "a secret"})
    Security(credentials=Credentials(access_key='operators'), tls=Tls(ca=None, cert=None, key=None, check_host=True))
    """
    from rocketc.client.security import Tls, tls_context  # late: commands on stores do not need the client

    access_key, path = options.pop("access_key", None), options.pop("credentials", None)
    is_tls, any_host = options.pop("tls", False), options.pop("tls_any_host", False)
    ca, cert, key = (options.pop(name, None) for name in ("tls_ca", "tls_cert", "tls_key"))
    tls: bool | Tls = False
    try:
        if is_tls or any_host or ca or cert or key:
            tls = Tls(ca, cert, key, environ.get(KEY_PASSWORD, ""), check_host=not any_host)
            tls_context(tls)  # wrong files are reported before anything is done
        credentials = _credentials(access_key, path, environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if any_host:
        note("--tls-any-host: a server with any certificate of the authority can answer in the place of another one")
    return Security(credentials, tls)


def _credentials(access_key: str | None, path: str | None, environ: Mapping[str, str]) -> Credentials | None:
    from rocketc.client.security import Credentials, read_credentials

    if path is not None:
        if access_key is not None:
            raise ValueError("use either --access-key or --credentials")
        return read_credentials(path)
    if access_key is None:
        return None
    secret = environ.get(SECRET_KEY)
    if not secret:
        raise ValueError(
            f"--access-key needs its secret in the environment variable {SECRET_KEY}, or use --credentials"
        )
    return Credentials(access_key, secret)
