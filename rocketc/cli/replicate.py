"""rocketc replicate: a hot copy of a master's log, without a broker."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from rocketc.cli.arguments import Size, refuse_a_log
from rocketc.cli.exit_codes import DAMAGED, DONE
from rocketc.cli.metrics_option import metrics_served, serves_metrics
from rocketc.cli.output import Out, command, note, print_result, progress
from rocketc.cli.security_options import take_security, with_security
from rocketc.cli.signals import Ended, Stop
from rocketc.client.connections import UNREACHABLE
from rocketc.jobs.replicate import ReplicaProgress, Replication
from rocketc.jobs.replicate import replicate as begin
from rocketc.remoting.addresses import split_address
from rocketc.report.text import show_size, visible

if TYPE_CHECKING:
    from typing_extensions import Self

_SLAVE = "acknowledges what it has, as a slave: a SYNC_MASTER counts it as a replica"
_COPY = "acknowledges nothing: a SYNC_MASTER of RocketMQ 4.x without another slave waits its full timeout for each send"


class _From(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """`start` or a physical offset."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "start" or isinstance(value, int):
            return value
        if not re.fullmatch(r"\d{1,18}", value, re.ASCII):
            self.fail(f"{value!r} is neither `start` nor a physical offset", param, ctx)
        return int(value)


@command(
    "rocketc replicate 10.0.0.5:10912 /data/copy",
    "rocketc replicate 10.0.0.5:10912 /data/copy --from start --then verify",
)
@click.argument("master", metavar="MASTER:PORT")
@click.argument("store", type=click.Path())
@click.option(
    "--from",
    "start",
    type=_From(),
    metavar="start|OFFSET",
    help="Where a new copy begins: at the master's first message, or at the start of the log file with this physical "
    "offset. Default: the start of the master's last log file.",
)
@click.option("--acknowledge", is_flag=True, help="Be a slave: a SYNC_MASTER then counts the copy as a replica.")
@click.option(
    "--then",
    type=click.Choice(["stop", "verify"]),
    help="End when the copy has all that the master had at the beginning. verify: check the copy, as `rocketc verify`.",
)
@click.option("--rate-limit", type=Size(), metavar="SIZE", help="At most this much per second, as in 20MiB.")
@click.option(
    "--mapped-file-size",
    type=Size(),
    metavar="SIZE",
    help="Size of the master's log files. Default: what its broker says, or 1 GiB.",
)
@click.option(
    "-b", "--broker", metavar="HOST:PORT",
    help="The master's broker, which is asked for the size and the ends of its log. Default: the port before PORT.",
)  # fmt: skip
@serves_metrics
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the progress each second as a JSON object.")
@with_security
def replicate(
    master: str,
    store: str,
    start: Any,
    acknowledge: bool,
    then: str | None,
    rate_limit: int | None,
    mapped_file_size: int | None,
    broker: str | None,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Copy the log of a running master into STORE, and keep up with it until Ctrl-C.

    MASTER:PORT is the HA service of a broker, RocketMQ's or ours: port 10912 by default. STORE is created if it does
    not exist; an existing copy continues where it ends. `cat -F`, `scan`, `verify` and Spark can read it meanwhile.

    Each record is checked before it is stored, and a log that is not that of the master is never continued. Without
    --acknowledge no message counts as replicated because of this copy. But a SYNC_MASTER of RocketMQ 4.x without
    another slave then waits its full timeout for each send, instead of answering SLAVE_NOT_AVAILABLE.

    The exit code is 1 if the copy and the master do not fit, or if `--then verify` finds damage. A master that is not
    reached is tried again and again.
    """
    security = take_security(given)
    refuse_a_log(store)
    for option, value in (("MASTER:PORT", master), ("--broker", broker)):
        try:
            split_address(value) if value is not None else None
        except ValueError as error:
            raise click.UsageError(f"{option}: {error}") from None
    stop = Stop()
    with stop.installed():
        try:
            with stop.waiting():
                copy = _begin(
                    master,
                    store,
                    start=start,
                    acknowledge=acknowledge,
                    mapped_file_size=mapped_file_size,
                    rate_limit=rate_limit,
                    broker=broker,
                    credentials=security.credentials,
                    tls=security.tls,
                )
            try:
                note(f"{master} is copied to {os.path.abspath(store)}, which {_SLAVE if acknowledge else _COPY}")
                for text in copy.notes:
                    note(text)
                with metrics_served(_metrics_of(copy), metrics_host, metrics_port):
                    _follow(copy, stop, as_json, until_caught_up=then is not None)
            finally:
                copy.close()
                note(f"the copy ends at the physical offset {copy.last.phy_offset}")
        except Ended as error:
            return error.code
    return _verify(store, as_json) if then == "verify" else DONE


def _begin(master: str, store: str, **options: Any) -> Replication:
    try:
        return begin(master, store, **options)
    except UNREACHABLE as error:
        what = "--from start asks this broker; name the master's one with --broker HOST:PORT, or use --from OFFSET"
        raise type(error)(f"{error}; {what}") from None
    except ValueError as error:
        if type(error) is ValueError:
            raise click.UsageError(str(error)) from None
        raise


def _follow(copy: Replication, stop: Stop, as_json: bool, until_caught_up: bool) -> None:
    """Show the progress until the copy has caught up, or for ever. Raises Ended after a signal."""
    fault: str | None = None
    may_be_wrong = True  # the port
    with Out(live=True) as out, _Line(is_shown=not as_json) as line:

        def say(text: str) -> None:
            line.clear()
            note(text)

        while True:
            with stop.waiting():
                found = next(copy)
            if found.error is not None and found.error != fault:
                say(f"{copy.master}: {found.error}; it is tried again")
            fault = found.error
            may_be_wrong = may_be_wrong and found.received_bytes == 0
            if may_be_wrong and fault is not None and found.connections > 0:
                say(
                    f"{copy.master} has sent nothing of a log yet: is this haListenPort, 10912 by default, of a broker?"
                )
                may_be_wrong = False
            if as_json:
                out.json(found.to_dict())
            line.show(found)
            if until_caught_up and found.caught_up:
                return


class _Line:
    """The line of the progress on stderr, if that is a terminal. The end of a `with` block removes it."""

    def __init__(self, is_shown: bool) -> None:
        self._stream = sys.stderr if is_shown and sys.stderr is not None and sys.stderr.isatty() else None

    def show(self, found: ReplicaProgress) -> None:
        self._draw(visible(status(found))[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Remove it, before something else is printed."""
        self._draw("")

    def _draw(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


def status(found: ReplicaProgress) -> str:
    """Return the line that shows a progress.

    >>> status(ReplicaProgress(3 << 20, 0, 3 << 20, 1048576.0, 5 << 20, "transferring", 1, None, False))
    'copied 3.0 MiB to physical offset 3145728, 1.0 MiB/s, 2.0 MiB behind'
    """
    text = f"copied {show_size(found.received_bytes)} to physical offset {found.phy_offset}"
    if not found.is_connected:
        return f"{text}, not connected{' yet' * (found.error is None)}"
    text += f", {show_size(round(found.bytes_per_second))}/s"
    return text if found.lag is None else f"{text}, {show_size(found.lag)} behind"


def _metrics_of(copy: Replication) -> Callable[[], Awaitable[str]]:
    """Return what metrics_served() serves: the metrics of the copy and its store."""
    from rocketc.metrics.exposition import exposition
    from rocketc.metrics.measures import measures
    from rocketc.metrics.replica_measures import replica_measures
    from rocketc.metrics.snapshot import SnapshotReader

    reader = SnapshotReader(copy.store)

    async def text() -> str:
        return exposition([*replica_measures(copy.last), *measures(reader)])

    return text


def _verify(store: str, as_json: bool) -> int:
    """Check the copy, print the report as `rocketc verify`, and return the exit code."""
    from rocketc.files.paths import resolve
    from rocketc.jobs.verify import verify
    from rocketc.report.summaries import draw_verify

    total = 2 * sum(file.size for log in resolve(store) for file in log.files)
    with progress("checking", total) as update:
        report = verify(store, tell=update)
    print_result(
        as_json,
        lambda: {"path": [store], **report.to_dict()},
        lambda color: draw_verify((store,), report, color, False),
    )
    return DONE if report.is_whole else DAMAGED
