"""rocketc namesrv: run a name server."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from rocketc.cli.arguments import Number
from rocketc.cli.exit_codes import COULD_NOT, DONE, USAGE
from rocketc.cli.output import Out, command, note
from rocketc.cli.serving import serve
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.tables.config_manager import now_ms

_LOCAL = "127.0.0.1"


@command("rocketc namesrv --port 9876", "rocketc namesrv -c namesrv.conf --host 0.0.0.0")
@click.option("-c", "--conf", type=click.Path(), metavar="FILE", help="RocketMQ's namesrv.conf.")
@click.option("--host", metavar="HOST", help="Listen here. Default: bindAddress of FILE; without FILE 127.0.0.1.")
@click.option("--port", type=Number(0, 65535), metavar="PORT", help="Default: listenPort of FILE, or 9876. 0: any.")
def namesrv(conf: str | None, host: str | None, port: int | None) -> int:
    """Run a name server: RocketMQ's brokers register with it, and clients ask it for routes.

    It prints one line with its address when it is ready, and logs to stderr. The first Ctrl-C or SIGTERM ends it in
    order, the second one at once. Routes are in memory only. Key-value settings are in ~/namesrv/kvConfig.json, unless
    FILE has another kvConfigPath.
    """
    config = NamesrvConfig(bind_address=_LOCAL)
    if conf is not None:
        try:
            config, without_effect = NamesrvConfig.read(conf)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if without_effect:
            note(f"{conf}: not used here: {', '.join(without_effect)}")
    config.bind_address = config.bind_address if host is None else host
    config.listen_port = config.listen_port if port is None else port
    home = os.path.join(os.path.expanduser("~"), "namesrv")
    config.kv_config_path = config.kv_config_path or os.path.join(home, "kvConfig.json")
    config.config_store_path = config.config_store_path or os.path.join(home, "namesrv.properties")
    return serve(lambda stop: _run(config, stop))


async def _run(config: NamesrvConfig, stop: asyncio.Event) -> int:
    server = NameServer(config, clock=now_ms)
    try:
        await server.__aenter__()
    except ValueError as error:
        note(str(error))
        return USAGE
    except OSError as error:
        note(f"can't listen on {error.filename}: {error.strerror}")
        return COULD_NOT
    try:
        with Out(live=True) as out:
            out.write_text(f"name server ready on {server.address}\n")
        await stop.wait()
    finally:
        await server.__aexit__(*sys.exc_info())
    return DONE
