"""rocketc broker: serve a store to RocketMQ's clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
from functools import partial
from typing import Any

import click

from rocketc.cli.exit_codes import COULD_NOT, DONE, USAGE
from rocketc.cli.output import Out, command, note
from rocketc.config import StoreConfig
from rocketc.config_fields import Flush
from rocketc.errors import RocketcError
from rocketc.report.text import plain

_PORT = click.IntRange(0, 65535)  # rocketc.cli.arguments would load much that a broker does not need


@command("rocketc broker /data/store", "rocketc broker -c broker.conf --name-server 10.0.0.5:9876",
         "rocketc broker /data/copy --role slave --name-server 10.0.0.5:9876")  # fmt: skip
@click.argument("store", required=False, type=click.Path())
@click.option("-c", "--conf", type=click.Path(), metavar="FILE", help="RocketMQ's broker.conf.")
@click.option("-n", "--name-server", metavar="ADDRESSES", help="Register with these name servers, separated by `;`.")
@click.option("--port", type=_PORT, metavar="N", help="Port to listen on; 0: a free one.")
@click.option("--namesrv-port", type=_PORT, metavar="N",
              help="Port of the name server inside. Default: 9876; 0: a free one.")  # fmt: skip
@click.option(
    "--metrics-port", type=_PORT, metavar="N", help="Serve metrics for Prometheus on this port; 0: a free one."
)
@click.option("--flush", type=click.Choice(["async", "sync"]), help="sync: answer sends when they are on the disk.")
@click.option("--role", type=click.Choice(["master", "slave"]),
              help="slave: copy the log of the master with the same broker name, and serve reads.")  # fmt: skip
@click.option("--temporary", is_flag=True, help="Use a store of small files that is removed at the end; without STORE.")
@click.option("--settings", metavar="JSON", help="Fields of BrokerConfig and StoreConfig, over those of --conf.")
@click.option("--json", "as_json", is_flag=True, help="Print a line when it serves: name_server, address, store, pid.")
@click.option("--until-eof", is_flag=True, help="End when stdin ends: with the program that started this one.")
def broker(
    store: str | None,
    conf: str | None,
    name_server: str | None,
    port: int | None,
    namesrv_port: int | None,
    metrics_port: int | None,
    flush: Flush | None,
    role: str | None,
    temporary: bool,
    settings: str | None,
    as_json: bool,
    until_eof: bool,
) -> int:
    """Run a broker on STORE, and a name server beside it, until Ctrl-C or SIGTERM.

    STORE is created if it does not exist. Without --conf and --name-server, only programs on this machine can connect:
    the name server listens on 127.0.0.1:9876, the broker on 127.0.0.1:10911 and 10909.

    A program that starts a broker for its tests uses --temporary --json --until-eof, and 0 for both ports.
    """
    from rocketc.broker.config import BrokerConfig, read_broker_conf
    from rocketc.broker.settings import served_config, split_fields, temporary_config, temporary_folder
    from rocketc.cli.serving import serve

    fields: dict[str, Any] = {}
    store_config = served_config(StoreConfig())
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
    if metrics_port is not None:
        fields |= {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": metrics_port}
    if temporary and store is not None:
        raise click.UsageError("--temporary makes a store of its own; leave out STORE")
    if role is not None:
        store_config = _with_role(role, store_config, fields)
    path = store or store_config.store_path_root_dir
    if path is None and not temporary:
        raise click.UsageError("give the path of the store, or storePathRootDir in the file of --conf")
    try:
        of_broker, of_store = split_fields("--settings", _settings(settings))
        config = BrokerConfig(**{**fields, **of_broker})
        store_config = StoreConfig.of(config=store_config, flush=flush, **of_store)
    except (TypeError, ValueError) as error:
        return _report(error, as_json)
    with contextlib.ExitStack() as ending:
        if temporary:
            path = ending.enter_context(temporary_folder())
            store_config = temporary_config(store_config, of_store)
        serving = partial(
            _serve,
            str(path),
            config,
            store_config,
            9876 if namesrv_port is None else namesrv_port,
            conf,
            as_json,
            until_eof,
        )
        return serve(serving, logging.WARNING if as_json else logging.INFO)


def _with_role(role: str, config: StoreConfig, fields: dict[str, Any]) -> StoreConfig:
    """Return the settings of the store for a role, and set the broker's id: it may be that of the other role."""
    if role == "slave":
        fields["broker_id"] = max(fields.get("broker_id", 0), 1)
        return config.replace(broker_role="SLAVE")
    fields["broker_id"] = 0
    return config.replace(broker_role="ASYNC_MASTER") if config.broker_role == "SLAVE" else config


def _settings(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--settings is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("--settings is not a JSON object")
    return found


def _report(error: Exception, as_json: bool) -> int:
    """Write why the broker does not serve: a line of text on stderr, or one of JSON on stdout. Return the exit code."""
    from rocketc.broker.child import error_line

    if as_json:
        with Out() as out:
            out.json(error_line(error))
    else:
        note(plain(error))
    return USAGE if isinstance(error, ValueError | TypeError) else COULD_NOT


def _is_remote(addresses: str | None) -> bool:
    from rocketc.broker.running import is_loopback

    hosts = [one.strip().rpartition(":")[0].strip("[]") for one in (addresses or "").split(";") if one.strip()]
    return not all(map(is_loopback, hosts))


async def _serve(
    path: str,
    config: Any,
    store_config: StoreConfig,
    namesrv_port: int,
    conf: str | None,
    as_json: bool,
    until_eof: bool,
    stop: asyncio.Event,
) -> int:
    from rocketc.broker.running import is_loopback, running_broker

    if until_eof:
        threading.Thread(target=_follow_stdin, args=(asyncio.get_running_loop(), stop), daemon=True).start()
    is_serving = False
    try:
        async with running_broker(path, config, store_config, namesrv_port=namesrv_port, conf=conf) as running:
            metrics = {} if running.metrics_url is None else {"metrics": running.metrics_url}
            is_serving = True
            if as_json:
                with Out() as out:
                    place = {"name_server": running.name_server, "address": running.address}
                    place["ha_address"] = running.ha_address
                    out.json({**place, "store": path, "pid": os.getpid(), **metrics})
            else:
                note(f"name server {running.name_server}, broker {running.address}, store {path}; Ctrl-C ends it")
                if running.controller.slave is not None:
                    note(running.controller.slave.shown(config))
                for url in metrics.values():
                    note(f"metrics at {url}")
            if not (is_loopback(config.bind_address) or config.acl_enable or running.controller.tls.is_mutual):
                note(
                    f"everyone who reaches {config.bind_address} can read and write: neither ACL nor TLS with "
                    "certificates of clients is on"
                )
            await running.controller.run_until(stop)
            if not as_json:
                note("the broker ends")
    except BrokenPipeError:  # the reader of the line of --json has ended
        raise
    except (ValueError, RocketcError, OSError) as error:
        return _report(error, as_json and not is_serving)
    return DONE


def _follow_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` when stdin ends. os.read: a thread in sys.stdin.read() would hold a lock at the end of Python."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)
