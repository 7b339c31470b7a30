"""rocketc broker: serve a store to RocketMQ's clients."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import Any

import click

from rocketc.cli.arguments import Number
from rocketc.cli.exit_codes import COULD_NOT, DONE, USAGE
from rocketc.cli.output import command, note
from rocketc.config import StoreConfig
from rocketc.config_fields import Flush
from rocketc.errors import RocketcError

_MOST_PORT = 65535


@command("rocketc broker /data/store", "rocketc broker -c broker.conf --name-server 10.0.0.5:9876")
@click.argument("store", required=False, type=click.Path())
@click.option("-c", "--conf", type=click.Path(), metavar="FILE", help="RocketMQ's broker.conf.")
@click.option("-n", "--name-server", metavar="ADDRESSES", help="Register with these name servers, separated by `;`.")
@click.option("--port", type=Number(0, _MOST_PORT), metavar="N", help="Port to listen on; 0: a free one.")
@click.option("--namesrv-port", type=Number(0, _MOST_PORT), metavar="N",
              help="Port of the name server inside. Default: 9876; 0: a free one.")  # fmt: skip
@click.option("--flush", type=click.Choice(["async", "sync"]), help="sync: answer sends when they are on the disk.")
def broker(
    store: str | None,
    conf: str | None,
    name_server: str | None,
    port: int | None,
    namesrv_port: int | None,
    flush: Flush | None,
) -> int:
    """Run a broker on STORE, and a name server beside it, until Ctrl-C or SIGTERM.

    STORE is created if it does not exist. Without --conf and --name-server, only programs on this machine can connect:
    the name server listens on 127.0.0.1:9876, the broker on 127.0.0.1:10911 and 10909.
    """
    from rocketc.broker.config import BrokerConfig, read_broker_conf

    fields: dict[str, Any] = {}
    store_config = StoreConfig()
    if conf is not None:
        try:
            fields, store_config, unused = read_broker_conf(conf)
        except ValueError as error:
            note(str(error))
            return USAGE
        except OSError as error:
            note(f"{conf}: {error.strerror}")
            return COULD_NOT
        if unused:
            note(f"{conf}: not used: {', '.join(unused)}")
        fields.setdefault("broker_name", socket.gethostname())
    if name_server is not None:
        fields["namesrv_addr"] = name_server
    if conf is not None or _is_remote(name_server):
        fields.setdefault("bind_address", "0.0.0.0")
    if port is not None:
        fields["listen_port"] = port
    if flush is not None:
        store_config = StoreConfig.of(config=store_config, flush=flush)
    path = store or store_config.store_path_root_dir
    if path is None:
        raise click.UsageError("give the path of the store, or storePathRootDir in the file of --conf")
    try:
        config = BrokerConfig(**fields)
    except ValueError as error:
        note(str(error))
        return USAGE
    return asyncio_run(_serve(str(path), config, store_config, 9876 if namesrv_port is None else namesrv_port))


def _is_remote(addresses: str | None) -> bool:
    from rocketc.broker.running import is_loopback

    hosts = [one.strip().rpartition(":")[0].strip("[]") for one in (addresses or "").split(";") if one.strip()]
    return not all(map(is_loopback, hosts))


async def _serve(path: str, config: Any, store_config: StoreConfig, namesrv_port: int) -> int:
    from rocketc.broker.running import is_loopback, running_broker

    log = logging.StreamHandler()
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("rocketc").addHandler(log)
    logging.getLogger("rocketc").setLevel(logging.INFO)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _end, stop, number)
    try:
        async with running_broker(path, config, store_config, namesrv_port=namesrv_port) as running:
            note(f"name server {running.name_server}, broker {running.address}, store {path}; Ctrl-C ends it")
            if not is_loopback(config.bind_address):
                note(f"everyone who reaches {config.bind_address} can read and write: neither ACL nor TLS is on")
            await running.controller.run_until(stop)
            note("the broker ends")
    except ValueError as error:
        note(str(error))
        return USAGE
    except RocketcError as error:
        note(str(error))
        return COULD_NOT
    except OSError as error:
        note(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return COULD_NOT
    return DONE


def _end(stop: asyncio.Event, number: signal.Signals) -> None:
    """The first signal ends the broker in order; the second one at once."""
    if stop.is_set():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()


def asyncio_run(main: Any) -> int:
    """Run a coroutine on uvloop if it is installed, otherwise on asyncio."""
    try:
        import uvloop
    except ImportError:
        code: int = asyncio.run(main)
    else:
        code = uvloop.run(main)
    return code
