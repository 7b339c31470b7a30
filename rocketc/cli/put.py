"""rocketc put: put lines, files or JSON Lines into a store."""

from __future__ import annotations

import errno
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import click

from rocketc._layout import PROPERTY_KEYS, PROPERTY_TAGS
from rocketc.cli.arguments import JAVA_INT_MAX, Number, Size, refuse_a_log
from rocketc.cli.cluster_url import SCHEME, only_cluster
from rocketc.cli.completion import complete_topic
from rocketc.cli.exit_codes import DONE, code_of
from rocketc.cli.output import Out, command, note, progress
from rocketc.cli.put_input import Block, lines, message_of, total_bytes, whole
from rocketc.cli.security_options import take_security, with_security
from rocketc.cli.signals import Ended, Stop
from rocketc.config import StoreConfig, refuse_sync_master
from rocketc.config_fields import Flush
from rocketc.errors import ClosedError, IllegalMessageError, RocketcError, StoreFullError, StoreIOError
from rocketc.format.message_keys import joined_keys
from rocketc.jobs.progress import no_progress
from rocketc.report.text import many, plain, show_size
from rocketc.store.cleaning import LogOnDisk
from rocketc.tables.topics import topic_name_error

if TYPE_CHECKING:
    from rocketc.cli.put_cluster import Sent
    from rocketc.log._put_result import PutResult
    from rocketc.store._store import MessageStore

_MAYBE_LOST = "the last messages may not be durable"
_JSON_GROWTH = 7  # a byte of a body takes up to six bytes in JSON, and 4/3 bytes in base64
_PARTS = {"commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock"}  # a store has one of these
_OF_OTHERS = {"config", "index"}  # folders of other programs are called so too: they do not show that a store is there


class Property(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A property: NAME=VALUE."""

    name = "property"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, _, text = value.partition("=")
        if not name or not text or "\x01" in name or "\x02" in value:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


@command(
    "rocketc put /data/store -t logs --tag app < app.log",
    "rocketc put /data/store --jsonl orders.jsonl",
    "rocketc put rocketmq://127.0.0.1:9876/orders --key k1 < order.json",
)
@click.argument("store", type=click.Path())
@click.argument("file", nargs=-1, type=click.Path(allow_dash=True))
@click.option("-t", "--topic", metavar="TOPIC", shell_complete=complete_topic, help="The topic of every message.")
@click.option("--tag", metavar="TAG", help="The tag of every message.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key of every message. Repeatable.")
@click.option("--property", "properties", type=Property(), multiple=True, metavar="NAME=VALUE",
              help="A property of every message. Repeatable.")  # fmt: skip
@click.option("-q", "--queue", type=Number(0, JAVA_INT_MAX), metavar="N", help="The queue id. Default: 0.")
@click.option("--queues", type=Number(1, 1 << 16), metavar="N", help="Put into queues 0 to N-1 in rotation.")
@click.option("--whole", "form", flag_value="whole", help="Each file, or all of stdin, is one message.")
@click.option(
    "--jsonl",
    "form",
    flag_value="jsonl",
    help="Each line is a JSON object as `cat --json` prints it. Other options override its fields.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="sync: flush the messages of each read before the next read. Default: flush twice a second and at the end.",
)
@click.option("--conf", type=click.Path(), metavar="FILE", help="The broker.conf, for file size, flush, locks, limits.")
@click.option(
    "--recovery",
    type=click.Choice(["keep", "java"]),
    help="Recovery of a damaged log: keep all valid records, or cut the log where RocketMQ does. Default: keep.",
)
@click.option("--file-size", type=Size(), metavar="SIZE", help="Size of each file of a new commit log. Default: 64MiB.")
@click.option("--any-topic", is_flag=True, help="Allow topics that brokers refuse, such as one with a blank.")
@click.option("--no-create", is_flag=True, help="If no store is at the path, do not create one; the exit code is 3.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print a summary as one JSON object on stdout.")
@with_security
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
    flush: Flush | None,
    conf: str | None,
    recovery: str | None,
    file_size: int | None,
    any_topic: bool,
    no_create: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Put messages into a store: each line of FILE, or of stdin, is a message. A new store is created if none exists.

    The path of a new store is printed on stderr. With --no-create, a path without a store is an error.

    No broker may run on the store. The messages that the summary counts are stored, also after Ctrl-C, an error, or a
    line that is not a message. The exit code is then 130 or 1; continue with the lines after those messages. After
    kill -9, the next start of a broker or of this command recovers the store.

    A broker serves only the topics in its config/topics.json.

    STORE can also be a topic of a running cluster, rocketmq://HOST:PORT/TOPIC. Each line is sent to the next queue, or
    to the queue of --queue or of the JSON line. The client and the broker give messages new ids, times and hosts.
    """
    url = only_cluster([store])
    if url is None and any(given.values()):
        raise click.UsageError(f"accounts and TLS are for a cluster, as in {SCHEME}127.0.0.1:9876/orders")
    if url is not None:
        of_store = {"--flush": flush, "--conf": conf, "--recovery": recovery, "--file-size": file_size,
                    "--any-topic": any_topic, "--no-create": no_create}  # fmt: skip
        for option, value in of_store.items():
            if value:
                raise click.UsageError(f"{option} is for a store, not for a cluster")
        if url.topic is not None and topic is not None:
            raise click.UsageError(f"{url.url} names the topic already: leave out -t")
        topic = url.topic or topic
    if queue is not None and queues is not None:
        raise click.UsageError("--queue and --queues exclude each other")
    if topic is None and form != "jsonl":
        raise click.UsageError("give the topic: -t TOPIC")
    (topic or "").encode()  # a text that is not UTF-8 raises before a store is created
    if topic is not None and not any_topic and (wrong := _topic_error(topic)):
        raise click.UsageError(wrong)
    names = set() if url is not None else _check_place(store)
    settings: dict[str, Any] = {} if url is not None else _settings(conf, flush, recovery, file_size)
    is_new = url is None and not names & (_PARTS - _OF_OTHERS) and not _has_log(store, settings.get("config"))
    if is_new and no_create:
        text = "not a store; check the path, or create a store there without --no-create"
        raise StoreIOError(errno.ENOENT, text, store)
    if form == "jsonl":
        settings["check_before_put_message"] = False  # a message from another store may have a longer topic
    message: dict[str, Any] = {} if topic is None else {"topic": topic}
    texts = dict(properties) | ({PROPERTY_TAGS: tag} if tag is not None else {})
    texts |= {PROPERTY_KEYS: joined_keys(keys)} if keys else {}
    for text in (*texts, *texts.values()):
        text.encode()
    if queue is not None:
        message["queue_id"] = queue
    turns = None if queues is None else cycle(range(queues))
    inputs = file or ("-",)
    how = _How(form or "lines", message, texts, turns, any_topic)
    if url is not None:
        from rocketc.cli.put_cluster import put_to_cluster  # late: it needs the client

        done: Sent | _Done = put_to_cluster(url, inputs, how.form, partial(_arguments, how=how), take_security(given))
    else:
        done = _put(store, inputs, settings, how, is_new)
    if as_json:
        with Out() as out:
            out.json(done.summary(store))
    elif done.messages:
        note(done.text(store))
    if done.code == DONE and done.messages == 0:
        note(f"nothing to read: {' '.join('stdin' if path == '-' else path for path in inputs)}")
    return done.code


@dataclass(frozen=True)
class _How:
    """How a line becomes a message.

    form    "lines", "whole" or "jsonl"
    given   arguments of store.put(); they override those of a JSON line
    texts   properties; they override those of a JSON line
    turns   the queue id of each message; None: that of `given` or of the line
    any_topic  topics of lines are not checked by a broker's rules
    """

    form: str
    given: dict[str, Any]
    texts: dict[str, str]
    turns: Iterator[int] | None
    any_topic: bool


@dataclass
class _Done:
    """The result: the stored messages, and the exit code."""

    code: int = DONE
    messages: int = 0
    bytes: int = 0
    first: int | None = None  # physical offset of the first record
    end: int | None = None  # physical offset after the last record
    seconds: float = 0.0

    def add(self, result: PutResult, size: int) -> None:
        """Count messages that were stored; size: bytes of their bodies."""
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

    def text(self, store: str) -> str:
        rate = f"{self.messages / max(self.seconds, 1e-9):,.0f}/s"
        size = f"{show_size(self.bytes)} in {self.seconds:.1f} s, {rate}"
        return f"{many(self.messages, 'message')} put into {store}: {size}; offsets {self.first} to {self.end}"


def _put(store: str, inputs: Sequence[str], settings: dict[str, Any], how: _How, is_new: bool) -> _Done:
    """Put the messages of the inputs, until their end, a signal or an error, which is reported on stderr.

    is_new  no store was at the path: report the new one before its first message
    """
    from rocketc.store.opening import open as open_store  # a slow import

    done = _Done()
    stop = Stop()
    total = total_bytes(inputs)
    bar = (progress if total else no_progress)("putting", total or 0)
    started = time.perf_counter()
    try:
        logging.getLogger("rocketc").addHandler(_NOTES)
        with stop.installed(), bar as update:
            with stop.waiting():  # a recovery can take long; if it is interrupted, the next open does it
                # One flush for all messages of a read is as safe as one flush per message.
                target = open_store(store, **{**settings, "flush": "async"})
            with target:
                if is_new:
                    note(f"new store: {os.path.abspath(store)}")
                try:
                    longest = target.config.max_message_size * (_JSON_GROWTH if how.form == "jsonl" else 1)
                    for block in (whole if how.form == "whole" else lines)(inputs, longest, stop.waiting):
                        _put_block(target, block, how, done, stop)
                        if settings["flush"] == "sync":
                            target.flush()
                        update(block.read)
                        stop.check()
                except Ended as error:
                    done.code = error.code
                except RocketcError as error:
                    done.code = code_of(error)
                    note(_error_text(error))
                    if target.failed is not None:
                        note(_MAYBE_LOST)
    except Ended as error:  # while the store was opened; or a second signal, while it was closed
        done.code = error.code
    except RocketcError as error:  # opening failed, or the last flush did
        if done.messages == 0:
            raise
        note(_error_text(error))
        note(_MAYBE_LOST)
        done.code = code_of(error)
    finally:
        logging.getLogger("rocketc").removeHandler(_NOTES)
    done.seconds = time.perf_counter() - started
    return done


class _Notes(logging.Handler):
    """A log handler that writes warnings of the library to stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


_NOTES = _Notes(logging.WARNING)  # one for the process: a signal that ends a command may leave it in place


def _put_block(target: MessageStore, block: Block, how: _How, done: _Done, stop: Stop) -> None:
    """Put the lines of a block. Stored messages are counted in `done`, also if this raises."""
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
    """Return the arguments of store.put() for a line. Raises ValueError if the line is not a message."""
    made: dict[str, Any] = message_of(line) if how.form == "jsonl" else {"body": line}
    made |= how.given
    if how.texts:
        made["properties"] = made.get("properties", {}) | how.texts
    if how.turns is not None:
        made["queue_id"] = next(how.turns)
    if "topic" not in made:
        raise ValueError("the topic is missing: add it to the line, or give -t")
    if "topic" not in how.given and not how.any_topic and (wrong := _topic_error(made["topic"])):
        raise ValueError(wrong)
    return made


@lru_cache
def _topic_error(topic: str) -> str | None:
    """Return why a broker refuses this topic; None if it is allowed."""
    wrong = topic_name_error(topic)
    return wrong and f"topic {topic!r}: {wrong}; --any-topic allows it"


def _error_text(error: RocketcError) -> str:
    return f"the disk is full: {plain(error)}" if isinstance(error, StoreFullError) else plain(error)


def _check_place(store: str) -> set[str]:
    """Return the names in the folder, or set() if it does not exist.

    Raises StoreIOError or UsageError for a folder or file that is not a store, so that no store is created there by
    mistake.
    """
    if not os.path.lexists(store):
        return set()
    try:
        names = set(os.listdir(store))
    except NotADirectoryError:
        raise click.UsageError(f"{store} is not a folder; give the store first, then the files") from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, store) from None
    if names - {"lost+found"} and not names & _PARTS:
        refuse_a_log(store, names)
        raise StoreIOError(errno.ENOTEMPTY, "not a store, and not empty; check the path", store)
    return names


def _has_log(store: str, config: StoreConfig | None) -> bool:
    """Return True if the log of a store is in the folders that its broker.conf names."""
    if config is None:
        return False
    log = LogOnDisk(config.commit_log_paths(os.path.abspath(store)), config.read_only_paths)
    return bool(log.files)


def _settings(conf: str | None, flush: Flush | None, recovery: str | None, file_size: int | None) -> dict[str, Any]:
    """Return keyword arguments of rocketc.open() from the command line and a broker.conf; they include `flush`."""
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
        settings = StoreConfig.of(flush=flush, **made)
        refuse_sync_master(settings)
        made["flush"] = settings.flush
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, error.filename) from None
    return made
