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
from rocketc.remoting.addresses import join_address, own_address, split_address
from rocketc.remoting.socket_faults import listen_error
from rocketc.store.futures import close_in_thread
from rocketc.store.opening import open_master
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
    ha_address   host:port where slaves connect
    metrics_url  where its metrics are served; None: metricsExporterType does not ask for it
    """

    controller: BrokerController
    address: str
    name_server: str
    ha_address: str
    metrics_url: str | None = None


def listening_sockets(host: str, port: int, receive_buffer: int = 0) -> tuple[socket.socket, socket.socket]:
    """Listen on a port and on the VIP port, which is two less. Port 0: both are free ones. Raises OSError.

    host            "::" listens on IPv6 and IPv4
    receive_buffer  bytes of a connection that the kernel holds; 0: it decides

    >>> main, vip = listening_sockets("127.0.0.1", 0)
    >>> main.getsockname()[1] - vip.getsockname()[1]
    2
    >>> main.close(), vip.close()
    (None, None)
    """
    for attempt in range(_ATTEMPTS):
        main = _listen(host, port, receive_buffer)
        try:
            return main, _listen(host, main.getsockname()[1] - VIP_DISTANCE, receive_buffer)
        except OSError as error:
            main.close()
            if port or error.errno not in (errno.EADDRINUSE, errno.EACCES) or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _listen(host: str, port: int, receive_buffer: int = 0) -> socket.socket:
    is_v6 = ":" in host
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM)  # create_server() hides its error
        one = socket.create_server(
            (host, port),
            family=family,
            dualstack_ipv6=is_v6 and host == "::",
            backlog=1024,
        )
    except OSError as error:
        raise listen_error(error, host, port) from None
    one.setblocking(False)
    if receive_buffer > 0:  # accepted sockets inherit it
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    return one


def announced_host(config: BrokerConfig) -> str:
    """Return the address that clients get: brokerIP1, or the one that the broker listens on.

    Raises ValueError if neither can be announced to other machines.

    >>> announced_host(BrokerConfig(bind_address="0.0.0.0", broker_ip1="10.0.0.1"))
    '10.0.0.1'
    """
    host = config.broker_ip1 or config.bind_address
    if host in _EVERY_ADDRESS:
        host = own_address()
    if is_loopback(host) and (remote := [one for one in config.name_servers if not is_loopback(_host_of(one))]):
        raise ValueError(
            f"brokerIP1 is {host}: clients of the name server {remote[0]} can't reach it; set brokerIP1 to an address "
            "of this machine"
        )
    return host


def refuse_role(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Raise ValueError for a role that a broker can't have with its other settings.

    >>> refuse_role(BrokerConfig(broker_id=1), StoreConfig())
    Traceback (most recent call last):
    ValueError: brokerId is 1, but brokerRole is ASYNC_MASTER: a master has id 0; set brokerId=0, or brokerRole=SLAVE
    """
    role = store_config.broker_role
    if role == "SLAVE":
        refuse_slave(config)
    elif config.broker_id != 0:
        raise ValueError(
            f"brokerId is {config.broker_id}, but brokerRole is {role}: a master has id 0; set brokerId=0, or "
            "brokerRole=SLAVE"
        )


def refuse_slave(config: BrokerConfig) -> None:
    """Raise ValueError for settings that a slave can't have.

    >>> refuse_slave(BrokerConfig(broker_id=1, namesrv_addr="10.0.0.5:9876", ha_master_address="10.0.0.7"))
    Traceback (most recent call last):
    ValueError: haMasterAddress: '10.0.0.7' is not an address such as 10.0.0.1:9876
    """
    if config.broker_id <= 0:
        raise ValueError(
            f"brokerRole is SLAVE, but brokerId is {config.broker_id}: the master has id 0; set brokerId to 1 or more"
        )
    if config.ha_master_address:
        try:
            split_address(config.ha_master_address)
        except ValueError as error:
            raise ValueError(f"haMasterAddress: {error}") from None
    elif not config.name_servers:
        raise ValueError(
            "brokerRole is SLAVE, but neither a name server (namesrvAddr) nor haMasterAddress says where the master is"
        )


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


@contextlib.asynccontextmanager
async def running_broker(
    path: str | os.PathLike[str],
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    namesrv_port: int = NAMESRV_PORT,
    clock: Clock = now_ms,
    chance: random.Random | None = None,
    conf: str | os.PathLike[str] | None = None,
) -> AsyncIterator[RunningBroker]:
    """Run a broker while the context is entered; at its end it stops in order.

    path          root folder of the store
    conf          the broker.conf of the settings, see BrokerController
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
    refuse_role(config, store_config)
    host = announced_host(config)
    async with contextlib.AsyncExitStack() as stack:
        main, vip = listening_sockets(config.bind_address, config.listen_port, config.server_socket_rcv_buf_size)
        stack.callback(main.close)
        stack.callback(vip.close)
        for_slaves = _listen(config.bind_address, config.ha_port)
        stack.callback(for_slaves.close)
        port, ha_port = main.getsockname()[1], for_slaves.getsockname()[1]
        addresses = config.name_servers
        if not addresses:
            inside = NamesrvConfig(
                bind_address=config.bind_address,
                listen_port=namesrv_port,
                tls_server_mode=config.tls_server_mode,
                tls_config_file=config.tls_config_file,
            )
            server = await stack.enter_async_context(NameServer(inside, clock=clock))
            addresses = [join_address(_reachable(config.bind_address), split_address(server.address)[1])]
        store = open_master(path, store_config.replace(store_host=(host, port)))
        stack.push_async_callback(close_in_thread, store.close)
        controller = BrokerController(
            store,
            dataclasses.replace(config, broker_ip1=host, listen_port=port, ha_listen_port=ha_port),
            (host, port),
            name_servers=addresses,
            clock=clock,
            chance=chance,
            conf=conf,
        )
        stack.push_async_callback(controller.close)
        await controller.start(main, vip, for_slaves)
        metrics_url = None
        if config.metrics_exporter_type.upper() != "DISABLE":
            metrics_url = await stack.enter_async_context(exporting.serving(controller))
        ha_address = join_address(config.broker_ip2 or host, ha_port)
        yield RunningBroker(controller, join_address(host, port), ";".join(addresses), ha_address, metrics_url)


def _reachable(bind_address: str) -> str:
    return "127.0.0.1" if bind_address in ("0.0.0.0", "") else "::1" if bind_address == "::" else bind_address
