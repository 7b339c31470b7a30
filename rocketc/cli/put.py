"""rocketc put: lines, files or JSON lines into a store."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import click

from rocketc._layout import PROPERTY_KEYS, PROPERTY_TAGS
from rocketc.cli.arguments import JAVA_INT_MAX, Number, Size, refuse_a_log
from rocketc.cli.completion import complete_topic
from rocketc.cli.output import Out, command, note, progress
from rocketc.cli.put_input import Block, lines, message_of, total_bytes, whole
from rocketc.cli.signals import Ended, Stop
from rocketc.config import StoreConfig
from rocketc.errors import ClosedError, IllegalMessageError, RocketcError, StoreFullError, StoreIOError
from rocketc.jobs.progress import no_progress
from rocketc.report.text import many, plain, show_size

if TYPE_CHECKING:
    from rocketc.log._put_result import PutResult
    from rocketc.store._store import MessageStore

_DOUBT = "the last messages may not be on the disk"
_JSON_GROWTH = 7  # a byte of a body is up to six in JSON, and a third more in base64
_PARTS = {"commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock"}  # one tells a store


class Property(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """NAME=VALUE."""

    name = "property"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, _, text = value.partition("=")
        if not name or not text or "\x01" in name or "\x02" in value:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


@command("rocketc put /data/store -t logs --tag app < app.log", "rocketc put /data/store --jsonl orders.jsonl")
@click.argument("store", type=click.Path())
@click.argument("file", nargs=-1, type=click.Path(allow_dash=True))
@click.option("-t", "--topic", metavar="TOPIC", shell_complete=complete_topic, help="The topic of every message.")
@click.option("--tag", metavar="TAG", help="The tag of every message.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key of every message; may be repeated.")
@click.option("--property", "properties", type=Property(), multiple=True, metavar="NAME=VALUE",
              help="A property of every message; may be repeated.")  # fmt: skip
@click.option("-q", "--queue", type=Number(0, JAVA_INT_MAX), metavar="N", help="The queue. Usual: 0.")
@click.option("--queues", type=Number(1, 1 << 16), metavar="N", help="Take queues 0 to N-1 by turns.")
@click.option("--whole", "form", flag_value="whole", help="Each file, or all of stdin, is one message.")
@click.option(
    "--jsonl",
    "form",
    flag_value="jsonl",
    help="Each line is an object as `cat --json` prints it; options go before it.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="sync: what was read is on the disk before more is read. Usual: at the end, and twice a second.",
)
@click.option("--conf", type=click.Path(), metavar="FILE", help="A broker.conf: file size, flush, locks, limits.")
@click.option(
    "--recovery",
    type=click.Choice(["keep", "java"]),
    help="Of a log that is damaged: keep all that is sound, or cut where RocketMQ would. Usual: keep.",
)
@click.option(
    "--file-size", type=Size(), metavar="SIZE", help="Of each file of a new commit log, as in 64MiB. Usual: 1GiB."
)
@click.option("-J", "--json", "as_json", is_flag=True, help="What was put, as one JSON object on stdout.")
def put(
    store: str,
    file: tuple[str, ...],
    topic: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    queue: int | None,
    queues: int | None,
    form: str | None,
    flush: str | None,
    conf: str | None,
    recovery: str | None,
    file_size: int | None,
    as_json: bool,
) -> int:
    """Put messages into a store: each line of FILE, or of stdin, is one. The store is made if it is not there.

    No broker may run on the store. What is told as put is stored, also if it ends by Ctrl-C, by an error, or by a line
    that is no message: then the exit code is 1 or 130, and the next run may go on behind it. After a kill -9 the next
    start of a broker, or of this command, recovers what is there.

    A broker knows only the topics of its config/topics.json.
    """
    if queue is not None and queues is not None:
        raise click.UsageError("--queue and --queues exclude each other")
    if topic is None and form != "jsonl":
        raise click.UsageError("say the topic: -t TOPIC")
    _check_place(store)
    settings = _settings(conf, flush, recovery, file_size)
    if form == "jsonl":
        settings["check_before_put_message"] = False  # what a store held may have a longer topic
    given: dict[str, Any] = {} if topic is None else {"topic": topic}
    texts = dict(properties) | ({PROPERTY_TAGS: tag} if tag is not None else {})
    texts |= {PROPERTY_KEYS: " ".join(keys)} if keys else {}
    for text in (topic or "", *texts, *texts.values()):
        text.encode()  # what is no UTF-8 ends it before a store is made
    if queue is not None:
        given["queue_id"] = queue
    turns = None if queues is None else cycle(range(queues))
    inputs = file or ("-",)
    done = _put(store, inputs, settings, _How(form or "lines", given, texts, turns))
    if as_json:
        with Out() as out:
            out.json(done.summary(store))
    elif done.messages:
        note(done.tell(store))
    if done.code == 0 and done.messages == 0:
        note(f"nothing to read: {' '.join('stdin' if path == '-' else path for path in inputs)}")
        return 1
    return done.code


@dataclass(frozen=True)
class _How:
    """What becomes of a line.

    form    "lines", "whole" or "jsonl"
    given   arguments of store.put(), over those of a JSON line
    texts   properties, over those of a JSON line
    turns   the queue of each message
    """

    form: str
    given: dict[str, Any]
    texts: dict[str, str]
    turns: Iterator[int] | None


@dataclass
class _Done:
    """What was put, and how it ended."""

    code: int = 0
    messages: int = 0
    bytes: int = 0
    first: int | None = None  # physical offset of the first record
    end: int | None = None  # behind the last
    seconds: float = 0.0

    def add(self, result: PutResult, size: int) -> None:
        """Count what the store has taken; size: bytes of the bodies."""
        self.messages += result.count
        self.bytes += size
        self.first = result.phy_offset if self.first is None else self.first
        self.end = result.end

    def summary(self, store: str) -> dict[str, Any]:
        return {
            "path": store,
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "start": self.first,
            "stop": self.end,
        }

    def tell(self, store: str) -> str:
        rate = f"{self.messages / max(self.seconds, 1e-9):,.0f}/s"
        size = f"{show_size(self.bytes)} in {self.seconds:.1f} s, {rate}"
        return f"{many(self.messages, 'message')} put into {store}: {size}; offsets {self.first} to {self.end}"


def _put(store: str, inputs: Sequence[str], settings: dict[str, Any], how: _How) -> _Done:
    """Put what the inputs say, until they end, a signal comes, or something goes wrong, which is told."""
    from rocketc.store.opening import open as open_store  # loads much

    done = _Done()
    stop = Stop()
    warnings_of_library = _Notes(logging.WARNING)
    logging.getLogger("rocketc").addHandler(warnings_of_library)
    total = total_bytes(inputs)
    bar = (progress if total else no_progress)("putting", total or 0)
    started = time.perf_counter()
    try:
        with stop.installed(), bar as tell:
            with stop.waiting():  # a recovery may take its time, and can be left to the next one
                # One flush for all that was read at once is as safe as one for each message.
                target = open_store(store, **{**settings, "flush": "async"})
            with target:
                try:
                    longest = target.config.max_message_size * (_JSON_GROWTH if how.form == "jsonl" else 1)
                    for block in (whole if how.form == "whole" else lines)(inputs, longest, stop.waiting):
                        _put_block(target, block, how, done, stop)
                        if settings["flush"] == "sync":
                            target.flush()
                        tell(block.read)
                        stop.check()
                except Ended as error:
                    done.code = error.code
                except RocketcError as error:
                    done.code = 1
                    note(_plainly(error))
                    if target.failed is not None:
                        note(_DOUBT)
    except Ended as error:  # while it was opened; or for the second time, while it was closed
        done.code = error.code
    except RocketcError as error:  # it could not be opened, or its end is not on the disk
        if done.messages == 0:
            raise
        note(_plainly(error))
        note(_DOUBT)
        done.code = 1
    finally:
        logging.getLogger("rocketc").removeHandler(warnings_of_library)
    done.seconds = time.perf_counter() - started
    return done


class _Notes(logging.Handler):
    """What the library warns of, a line each on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _put_block(target: MessageStore, block: Block, how: _How, done: _Done, stop: Stop) -> None:
    """Put the lines of a block; those that are stored are in `done` also if this raises."""
    if how.form == "jsonl" or how.turns is not None:
        for i, line in enumerate(block.lines):
            try:
                given = _arguments(line, how)
                done.add(target.put(**given), len(given["body"]))
            except ClosedError:
                raise
            except (ValueError, OverflowError) as error:
                raise IllegalMessageError(f"{block.place(i)}: {error}") from None
            stop.check()
        return
    start = target.max_phy_offset
    try:
        done.add(target.put_many(bodies=block.lines, properties=how.texts or None, **how.given), block.bytes)
    except RocketcError as error:
        if stored := getattr(error, "count", 0):
            done.messages += stored
            done.bytes += sum(map(len, block.lines[:stored]))
            done.first = start if done.first is None else done.first
            done.end = target.max_phy_offset
        if isinstance(error, IllegalMessageError):
            raise IllegalMessageError(f"{block.place(stored)}: {error}") from None
        raise


def _arguments(line: bytes, how: _How) -> dict[str, Any]:
    """Those of store.put(). Raises ValueError for a line that is no message."""
    made: dict[str, Any] = message_of(line) if how.form == "jsonl" else {"body": line}
    made |= how.given
    if how.texts:
        made["properties"] = made.get("properties", {}) | how.texts
    if how.turns is not None:
        made["queue_id"] = next(how.turns)
    if "topic" not in made:
        raise ValueError("it says no topic, and there is no -t")
    return made


def _plainly(error: RocketcError) -> str:
    return f"the disk is full: {plain(error)}" if isinstance(error, StoreFullError) else plain(error)


def _check_place(store: str) -> None:
    """Raise UsageError for a place that somebody meant otherwise: no store should be made there."""
    if not os.path.lexists(store):
        return
    try:
        names = set(os.listdir(store))
    except NotADirectoryError:
        raise click.UsageError(f"{store} is no folder; the store comes first, then files") from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, store) from None
    if not names - {"lost+found"} or names & _PARTS:
        return
    refuse_a_log(store, names)
    raise click.UsageError(f"{store} is no store, and not empty")


def _settings(conf: str | None, flush: str | None, recovery: str | None, file_size: int | None) -> dict[str, Any]:
    """Keywords of rocketc.open() from the command line and a broker.conf, `flush` among them."""
    made: dict[str, Any] = {} if file_size is None else {"mapped_file_size_commit_log": file_size}
    if recovery is not None:
        made["recovery"] = recovery
    try:
        if conf is not None:
            with warnings.catch_warnings(record=True) as unused:
                warnings.simplefilter("always")
                made["config"] = StoreConfig.from_properties(conf)
            for warning in unused:
                note(str(warning.message))
        made["flush"] = StoreConfig.of(flush=flush, **made).flush
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, error.filename) from None
    return made
