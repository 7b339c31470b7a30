"""How a client reaches its cluster: addresses, signatures, TLS; in tests also another clock and network."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketc._layout import DLQ_PREFIX
from rocketc.client.connections import Connector
from rocketc.client.hooks import Hooks
from rocketc.client.name_servers import name_server_addresses
from rocketc.client.security import Tls, tls_context
from rocketc.client.unique_ids import Clock
from rocketc.remoting.command import Command
from rocketc.remoting.signing import Credentials, Signer
from rocketc.tables.groups import CONSUMER_GROUP_MOST, group_name_error
from rocketc.tables.topics import TOPIC_MOST

_RESERVED_CONSUMERS, _RESERVED_PRODUCERS = "DEFAULT_CONSUMER", "DEFAULT_PRODUCER"


@dataclass(frozen=True)
class Access:
    """The way to a cluster.

    addresses  of the name servers
    hook       signs requests; None: they are not signed
    tls        for TLS; None: plain connections
    connector  how to connect; None: TCP
    clock      the Unix time in seconds
    chance     random numbers; None: new ones
    rpc_hooks  see Connections
    """

    addresses: tuple[str, ...]
    hook: Callable[[Command], object] | None = None
    tls: ssl.SSLContext | None = None
    connector: Connector | None = None
    clock: Clock = time.time
    chance: random.Random | None = None
    rpc_hooks: Hooks = field(default_factory=lambda: Hooks("RPC"), compare=False)


def access_to(
    name_server: str | None, credentials: Credentials | None = None, tls: bool | Tls | ssl.SSLContext = False
) -> Access:
    """Return the way to the cluster of some name servers. The arguments are those of Admin.

    >>> access_to("10.0.0.1:9876;10.0.0.2:9876").addresses
    ('10.0.0.1:9876', '10.0.0.2:9876')
    """
    if credentials is not None and not isinstance(credentials, Credentials):
        raise TypeError(f"credentials: expected Credentials, got {type(credentials).__name__}")
    hook = None if credentials is None else Signer(credentials)
    return Access(tuple(name_server_addresses(name_server)), hook, tls_context(tls))


def check_consumer_group(group: str) -> str:
    """Return the name of a consumer group. Raises TypeError, ValueError.

    >>> check_consumer_group("billing")
    'billing'
    """
    checked = _check_not(check_group(group), _RESERVED_CONSUMERS)
    if len(checked) > CONSUMER_GROUP_MOST:
        raise ValueError(
            f"group {group!r}: the name has {len(group)} characters; use at most {CONSUMER_GROUP_MOST}, because its "
            f"topic of dead letters, {DLQ_PREFIX} and this name, has at most {TOPIC_MOST}"
        )
    return checked


def check_producer_group(group: str) -> str:
    """Return the name of a producer group. Raises TypeError, ValueError.

    >>> check_producer_group("shop")
    'shop'
    """
    return _check_not(check_group(group), _RESERVED_PRODUCERS)


def _check_not(group: str, reserved: str) -> str:
    if group == reserved:
        raise ValueError(f"group {group!r}: RocketMQ does not allow this name; choose another one")
    return group


def check_group(group: str) -> str:
    """Return the name of a group. Raises TypeError, ValueError.

    >>> check_group("billing")
    'billing'
    """
    if not isinstance(group, str):
        raise TypeError(f"group: expected str, got {type(group).__name__}")
    if error := group_name_error(group):
        raise ValueError(f"group {group!r}: {error}")
    return group
