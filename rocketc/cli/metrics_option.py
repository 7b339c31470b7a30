"""--metrics-port and --metrics-host of commands that run until Ctrl-C, and the endpoint that they start."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import click

from rocketc.cli.arguments import Number
from rocketc.cli.output import note
from rocketc.client.loop_thread import give_back_loop, shared_loop


def serves_metrics(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `metrics_port` and `metrics_host`."""
    port = click.option(
        "--metrics-port",
        type=Number(0, 65535),
        metavar="N",
        help="Serve metrics for Prometheus on this port; 0: a free one.",
    )
    host = click.option(
        "--metrics-host", metavar="HOST", default="127.0.0.1", help="Serve them on this address. Default: 127.0.0.1."
    )
    return port(host(command))


@contextlib.contextmanager
def metrics_served(text: Callable[[], Awaitable[str]], host: str, port: int | None) -> Iterator[None]:
    """While entered, serve metrics, and print their URL on stderr. Raises OSError for a port in use.

    text  returns the metrics in the format of Prometheus; it runs on the loop of the clients of this process
    port  None: serve nothing
    """
    if port is None:
        yield
        return
    from rocketc.metrics.http_endpoint import PATH, HttpEndpoint
    from rocketc.remoting.addresses import join_address

    thread = shared_loop()
    try:
        endpoint = HttpEndpoint(text)
        found = thread.run(endpoint.listen(host, port))
        note(f"metrics at http://{join_address(*found)}{PATH}")
        try:
            yield
        finally:
            thread.run(endpoint.close())
    finally:
        give_back_loop(thread)
