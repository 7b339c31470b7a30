"""The options of format("rocketmq") for a live cluster: its name servers, groups, an account, TLS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rocketc.client.access import Access
    from rocketc.client.security import Credentials, Tls

NAME_SERVER = "nameServer"
SECRET_KEY = "ROCKETC_SECRET_KEY"  # environment variables, as of the command line
KEY_PASSWORD = "ROCKETC_TLS_KEY_PASSWORD"
SECRETS = ("secretKey", "securityToken", "tlsKeyPassword")
_ACCOUNT = ("accessKey", "secretKey", "securityToken")
_TLS = ("tlsCa", "tlsCert", "tlsKey", "tlsKeyPassword", "tlsAnyHost")
# Options of a cluster: for reading and for writing.
TO_READ = (NAME_SERVER, "consumerGroup", *_ACCOUNT, "tls", *_TLS)
TO_WRITE = (NAME_SERVER, "producerGroup", *_ACCOUNT, "tls", *_TLS)
_BOOL = {"true": True, "false": False}


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster. Spark sends it to the tasks. No text of repr() contains a secret.

    name_server     addresses of its name servers, separated by `;`
    credentials     the account that signs; None: requests are not signed
    tls             False: plain connections
    consumer_group  of the pulls; None: TOOLS_CONSUMER, which every broker has
    producer_group  of the sends; None: the default of the sink

    >>> Cluster("10.0.0.1:9876")
    Cluster(name_server='10.0.0.1:9876', credentials=None, tls=False, consumer_group=None, producer_group=None)
    """

    name_server: str
    credentials: Credentials | None = None
    tls: bool | Tls = False
    consumer_group: str | None = None
    producer_group: str | None = None

    def access(self) -> Access:
        """Return the way to the cluster for the classes of the client. Raises ValueError for files of TLS.

        >>> Cluster("10.0.0.1:9876;10.0.0.2:9876").access().addresses
        ('10.0.0.1:9876', '10.0.0.2:9876')
        """
        from rocketc.client.access import access_to

        return access_to(self.name_server, self.credentials, self.tls)


def cluster_of(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster of the options of a load() or a save(); None: the options are for files.

    values   option -> its value
    environ  has the secret, or the password of the TLS key, if an option does not have it
    Raises ValueError that names the option and, unless it is a secret, its value.

    >>> cluster_of({"nameServer": "10.0.0.1:9876", "accessKey": "spark", "secretKey": "a secret", "tls": "true"})
    ... # doctest: +NORMALIZE_WHITESPACE
    Cluster(name_server='10.0.0.1:9876', credentials=Credentials(access_key='spark'),
        tls=Tls(ca=None, cert=None, key=None, check_host=True), consumer_group=None, producer_group=None)
    """
    if NAME_SERVER not in values:
        for name in (*TO_READ, *TO_WRITE):
            if name in values:
                raise ValueError(f"rocketmq: option {name}: only for a cluster; give nameServer, too")
        return None
    for name in ("path", "paths"):
        if name in values:
            raise ValueError(f"rocketmq: options nameServer and {name}: give one of them; with nameServer, use load()")
    from rocketc.client.access import check_consumer_group, check_producer_group
    from rocketc.client.name_servers import name_server_addresses

    _checked(values, NAME_SERVER, name_server_addresses)
    return Cluster(
        values[NAME_SERVER].strip(),
        _credentials(values, environ),
        _tls(values, environ),
        _checked(values, "consumerGroup", check_consumer_group) if "consumerGroup" in values else None,
        _checked(values, "producerGroup", check_producer_group) if "producerGroup" in values else None,
    )


def _checked(values: Mapping[str, str], name: str, check: Any) -> Any:
    try:
        return check(values[name].strip())
    except ValueError as error:
        _refuse(name, values[name], str(error))


def _credentials(values: Mapping[str, str], environ: Mapping[str, str]) -> Credentials | None:
    from rocketc.client.security import Credentials

    access_key, secret, token = (values.get(name, "").strip() for name in _ACCOUNT)
    if access_key:
        secret = secret or environ.get(SECRET_KEY, "")
        if not secret:
            raise ValueError(
                f"rocketmq: option accessKey: it needs the option secretKey, or the environment variable {SECRET_KEY}"
            )
        return Credentials(access_key, secret, token or None)
    for name in _ACCOUNT:
        if name in values:
            raise ValueError(f"rocketmq: option {name}: give accessKey and secretKey, neither of them empty")
    return None


def _tls(values: Mapping[str, str], environ: Mapping[str, str]) -> bool | Tls:
    from rocketc.client.security import Tls, tls_context

    given = [name for name in _TLS if name in values]
    any_host = _truth(values, "tlsAnyHost", False)
    if not _truth(values, "tls", bool(given)):
        if given:
            raise ValueError(f"rocketmq: options tls=false and {given[0]}: give one of them")
        return False
    ca, cert, key = (values.get(name, "").strip() or None for name in ("tlsCa", "tlsCert", "tlsKey"))
    password = values.get("tlsKeyPassword") or environ.get(KEY_PASSWORD, "")
    tls = Tls(ca, cert, key, password, check_host=not any_host)
    try:
        tls_context(tls)  # wrong files are reported on the driver
    except ValueError as error:
        raise ValueError(f"rocketmq: option {given[0] if given else 'tls'}: {error}") from None
    return tls


def _truth(values: Mapping[str, str], name: str, default: bool) -> bool:
    if name not in values:
        return default
    if (text := values[name].strip().lower()) not in _BOOL:
        _refuse(name, values[name], f"it must be one of {', '.join(_BOOL)}")
    return _BOOL[text]


def _refuse(name: str, value: str, why: str) -> NoReturn:
    raise ValueError(f"rocketmq: option {name}={value!r}: {why}")
