"""A broker as a process runs it: sockets, a store, a name server beside it if no other is given."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import ipaddress
import os
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeVar

from rocketc import exporting
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.config import StoreConfig
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.addresses import join_address, split_address
from rocketc.store.futures import close_in_thread
from rocketc.store.opening import open as open_store
from rocketc.tables.config_manager import Clock, now_ms

NAMESRV_PORT = 9876
VIP_DISTANCE = 2
_ATTEMPTS = 50  # to find two free ports
_T = TypeVar("_T")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class RunningBroker:
    """A broker that serves.

    address      host:port that it announces
    name_server  the addresses of its name servers, separated by `;`
    metrics_url  where its metrics are served; None: metricsExporterType does not ask for it
    """

    controller: BrokerController
    address: str
    name_server: str
    metrics_url: str | None = None


def listening_sockets(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Listen on a port and on the VIP port, which is two less. Port 0: both are free ones. Raises OSError.

    host  "::" listens on IPv6 and IPv4

    >>> main, vip = listening_sockets("127.0.0.1", 0)
    >>> main.getsockname()[1] - vip.getsockname()[1]
    2
    >>> main.close(), vip.close()
    (None, None)
    """
    for attempt in range(_ATTEMPTS):
        main = _listen(host, port)
        try:
            return main, _listen(host, main.getsockname()[1] - VIP_DISTANCE)
        except OSError as error:
            main.close()
            if port or error.errno not in (errno.EADDRINUSE, errno.EACCES) or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _listen(host: str, port: int) -> socket.socket:
    is_v6 = ":" in host
    try:
        one = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            dualstack_ipv6=is_v6 and host == "::",
            backlog=1024,
        )
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), join_address(host, port)) from None
    one.setblocking(False)
    return one


def announced_host(config: BrokerConfig) -> str:
    """Return the address that clients get: brokerIP1, or the one that the broker listens on.

    Raises ValueError if neither can be announced to other machines.

    >>> announced_host(BrokerConfig(bind_address="0.0.0.0", broker_ip1="10.0.0.1"))
    '10.0.0.1'
    """
    host = config.broker_ip1 or config.bind_address
    if host in _EVERY_ADDRESS:
        host = _own_address()
    if is_loopback(host) and (remote := [one for one in config.name_servers if not is_loopback(_host_of(one))]):
        raise ValueError(
            f"brokerIP1 is {host}: clients of the name server {remote[0]} can't reach it; set brokerIP1 to an address "
            "of this machine"
        )
    return host


def refuse_replica(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Raise ValueError for the settings of a slave, or of a master whose sends wait for slaves.

    >>> refuse_replica(BrokerConfig(broker_id=1), StoreConfig())
    Traceback (most recent call last):
    ValueError: brokerId is 1; there is no replication yet: use brokerId 0 and brokerRole ASYNC_MASTER
    """
    wrong = f"brokerRole is {store_config.broker_role}" if store_config.broker_role != "ASYNC_MASTER" else None
    if config.broker_id != 0:
        wrong = f"brokerId is {config.broker_id}"
    if wrong is not None:
        raise ValueError(f"{wrong}; there is no replication yet: use brokerId 0 and brokerRole ASYNC_MASTER")


def is_loopback(host: str) -> bool:
    """Whether an address reaches only this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _own_address() -> str:
    """Return an address of this machine that others can reach, if that is known without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation address: nothing is sent
        except OSError:
            return "127.0.0.1"
        name: str = probe.getsockname()[0]
        return name


@contextlib.asynccontextmanager
async def running_broker(
    path: str | os.PathLike[str],
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    namesrv_port: int = NAMESRV_PORT,
    clock: Clock = now_ms,
    chance: random.Random | None = None,
) -> AsyncIterator[RunningBroker]:
    """Run a broker while the context is entered; at its end it stops in order.

    path          root folder of the store
    namesrv_port  of the name server that runs inside if config.namesrv_addr is not set; 0: a free one
    Raises OSError for a port in use, ValueError, and the errors of rocketc.open().

    >>> import asyncio, tempfile
    >>> async def main():
    ...     config = BrokerConfig(listen_port=0)
    ...     async with running_broker(tempfile.mkdtemp(), config, StoreConfig(), namesrv_port=0) as running:
    ...         return running.address.rpartition(":")[0]
    >>> asyncio.run(main())
    '127.0.0.1'
    """
    refuse_replica(config, store_config)
    host = announced_host(config)
    async with contextlib.AsyncExitStack() as stack:
        main, vip = listening_sockets(config.bind_address, config.listen_port)
        stack.callback(main.close)
        stack.callback(vip.close)
        port = main.getsockname()[1]
        addresses = config.name_servers
        if not addresses:
            inside = NamesrvConfig(
                bind_address=config.bind_address,
                listen_port=namesrv_port,
                tls_server_mode=config.tls_server_mode,
                tls_config_file=config.tls_config_file,
            )
            try:
                server = await stack.enter_async_context(NameServer(inside, clock=clock))
            except OSError as error:
                raise OSError(
                    error.errno, os.strerror(error.errno or 0), join_address(config.bind_address, namesrv_port)
                ) from None
            addresses = [join_address(_reachable(config.bind_address), split_address(server.address)[1])]
        store = open_store(path, config=store_config.replace(store_host=(host, port)))
        stack.push_async_callback(close_in_thread, store.close)
        controller = BrokerController(
            store,
            dataclasses.replace(config, broker_ip1=host, listen_port=port),
            (host, port),
            name_servers=addresses,
            clock=clock,
            chance=chance,
        )
        stack.push_async_callback(controller.close)
        await controller.start(main, vip)
        metrics_url = None
        if config.metrics_exporter_type.upper() != "DISABLE":
            metrics_url = await stack.enter_async_context(exporting.serving(controller))
        yield RunningBroker(controller, join_address(host, port), ";".join(addresses), metrics_url)


def _reachable(bind_address: str) -> str:
    return "127.0.0.1" if bind_address in ("0.0.0.0", "") else "::1" if bind_address == "::" else bind_address
