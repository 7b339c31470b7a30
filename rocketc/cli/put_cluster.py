"""rocketc put to a topic of a cluster: send lines, files or JSON Lines with a producer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import click

from rocketc._layout import FLAG_COMPRESSED, PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS
from rocketc.cli.exit_codes import DONE, code_of
from rocketc.cli.output import note, progress
from rocketc.cli.put_input import Block, lines, total_bytes, whole
from rocketc.cli.security_options import Security
from rocketc.cli.signals import Ended, Stop
from rocketc.client import NewMessage, Producer, SendStatus
from rocketc.client.access import Access, access_to
from rocketc.client.cluster_url import TopicUrl
from rocketc.client.names import RESERVED, SHARDING_KEY
from rocketc.client.routes import MessageQueue
from rocketc.client.send_results import SendResult
from rocketc.client.sender import Selector
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import (
    ConnectionLostError,
    IllegalMessageError,
    NoAnswerError,
    PartlySentError,
    RocketcError,
    TopicNotFoundError,
)
from rocketc.jobs.progress import no_progress
from rocketc.read.topics import missing_text
from rocketc.remoting.loops import run_on_loop
from rocketc.report.text import many, plain, show_size

GROUP = "TOOLS_PRODUCER"
_LONGEST = 4 << 20  # bytes of a line: a broker's usual maxMessageSize
_JSON_GROWTH = 7  # a byte of a body takes up to six bytes in JSON, and 4/3 bytes in base64


@dataclass
class Sent:
    """The result: the messages that are stored, and the exit code."""

    code: int = DONE
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    unsure: dict[str, int] = field(default_factory=dict)  # messages by status, but SEND_OK

    def summary(self, url: str) -> dict[str, Any]:
        """Return the members of the JSON object."""
        found = {"path": url, "messages": self.messages, "bytes": self.bytes, "seconds": round(self.seconds, 6)}
        return found | ({"statuses": self.unsure} if self.unsure else {})

    def text(self, url: str) -> str:
        """Return the line for stderr."""
        size = f"{show_size(self.bytes)} in {self.seconds:.1f} s, {self.messages / max(self.seconds, 1e-9):,.0f}/s"
        return f"{many(self.messages, 'message')} put into {url}: {size}"


class _Target(NamedTuple):
    """Where a message goes.

    queue_id  None: the producer chooses
    delay     level of a delayed message
    """

    topic: str
    queue_id: int | None
    delay: str | None

    def __str__(self) -> str:
        parts = [f"topic {self.topic!r}", "no queue" if self.queue_id is None else f"queue {self.queue_id}"]
        return ", ".join(parts + ([] if self.delay is None else [f"delay level {self.delay}"]))


class _Message:
    """The message of a line.

    number  of the line in its block
    """

    def __init__(self, block: Block, number: int, arguments: dict[str, Any]) -> None:
        self.block, self.number = block, number
        if arguments.get("sys_flag", 0) & FLAG_COMPRESSED:
            raise ValueError("the body is compressed; read the message without --no-decompress")
        if not arguments["body"]:
            raise ValueError("an empty body; brokers refuse it")
        properties = arguments.get("properties") or {}
        self.target = _Target(arguments["topic"], arguments.get("queue_id"), properties.get(PROPERTY_DELAY))
        self.message = NewMessage(
            arguments["body"],
            tags=properties.get(PROPERTY_TAGS),
            keys=properties.get(PROPERTY_KEYS),
            # The client and the broker give the others new values.
            properties={
                name: value for name, value in properties.items() if name not in RESERVED and name != SHARDING_KEY
            },
            flag=arguments.get("flag", 0),
        )


def put_to_cluster(
    url: TopicUrl,
    inputs: Sequence[str],
    form: str,
    arguments: Callable[[bytes], dict[str, Any]],
    security: Security,
) -> Sent:
    """Send the messages of the inputs, until their end, a signal or an error, which is reported on stderr.

    form       "lines", "whole" or "jsonl"
    arguments  returns the arguments of store.put() for a line. Raises ValueError if the line is not a message
    """
    try:
        access = access_to(url.name_server, security.credentials, security.tls)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sent, stop, total = Sent(), Stop(), total_bytes(inputs)
    bar = (progress if total else no_progress)("putting", total or 0)
    began = time.perf_counter()
    account, tls = security.credentials, security.tls
    try:
        with (
            stop.installed(),
            bar as update,
            Producer(GROUP, url.name_server, credentials=account, tls=tls, max_message_size=_LONGEST) as producer,
        ):
            sender = _Sender(producer, access, sent)
            longest = _LONGEST * (_JSON_GROWTH if form == "jsonl" else 1)
            try:
                for block in (whole if form == "whole" else lines)(inputs, longest, stop.waiting):
                    sender.put_block(*_groups(block, arguments), stop)
                    update(block.read)
            except Ended as error:
                sent.code = error.code
            except _LeftOut as left_out:
                sent.code = code_of(left_out.error)
            except RocketcError as error:
                sent.code = code_of(error)
                note(plain(error))
    except Ended as error:  # a second signal, while the producer was closed
        sent.code = error.code
    sent.seconds = time.perf_counter() - began
    for status, count in sent.unsure.items():
        note(f"{many(count, 'message')} stored with the status {status}")
    return sent


def _groups(
    block: Block, arguments: Callable[[bytes], dict[str, Any]]
) -> tuple[list[list[_Message]], IllegalMessageError | None]:
    """Return the messages of a block by target, those of each in order, up to a line that is wrong, and its error."""
    found: dict[_Target, list[_Message]] = {}
    for i, line in enumerate(block.lines):
        try:
            one = _Message(block, i, arguments(line))
        except (ValueError, OverflowError) as error:
            return list(found.values()), IllegalMessageError(f"{block.place(i)}: {error}")
        found.setdefault(one.target, []).append(one)
    return list(found.values()), None


class _LeftOut(Exception):
    """Messages were not stored, and stderr has their lines.

    error  of the send
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Sender:
    """Sends messages, and counts those that are stored."""

    def __init__(self, producer: Producer, access: Access, sent: Sent) -> None:
        self._producer, self._access, self._sent = producer, access, sent
        self._queues: dict[str, list[MessageQueue]] = {}
        self._turns: Counter[tuple[str, int]] = Counter()  # by topic and queue id

    def put_block(self, groups: list[list[_Message]], fault: IllegalMessageError | None, stop: Stop) -> None:
        """Send the messages of a block. If this ends early, stderr has the lines that are not stored.

        groups  messages of one target each
        fault   of the line after them
        Raises _LeftOut, Ended, and the fault.
        """
        begun = 0
        try:
            for group in groups:
                begun += 1
                self._put(group)
                stop.check()
        except BaseException:
            _note_unsent(groups[begun:])
            raise
        if fault is not None:
            raise fault

    def _put(self, group: list[_Message]) -> None:
        """Send messages of one target."""
        topic, number, delay = group[0].target
        stored = 0
        try:
            queue = None if number is None else self._queue(topic, number)
            if number is not None and queue is None:  # the topic does not exist yet: the first message makes it
                self._send_one(group[0], None, number)
                stored = 1
                queue = self._queue(topic, number) if len(group) > 1 else None
            if delay is not None or (number is not None and queue is None):
                for one in group[stored:]:
                    self._send_one(one, queue, number)
                    stored += 1
                return
            results = self._producer.send_many(topic, [one.message for one in group[stored:]], queue=queue)
            for one, sent in zip(group[stored:], results, strict=True):
                self._count(one, sent.status)
        except PartlySentError as error:
            for one, kept in zip(group[stored:], error.results, strict=False):
                assert isinstance(kept, SendResult)
                self._count(one, kept.status)
            self._note_left_out(group[stored + len(error.results) :], error.error)
            raise _LeftOut(error.error) from error.error
        except RocketcError as error:
            self._note_left_out(group[stored:], error)
            raise _LeftOut(error) from error
        except Ended:
            note(f"{_places(group[stored:] or group[-1:])}: may be stored")
            raise

    def _note_left_out(self, rest: Sequence[_Message], error: Exception) -> None:
        """Name the lines that a send left out."""
        is_missing = isinstance(error, TopicNotFoundError)
        hint = run_on_loop(_similar(self._access, rest[0].target.topic)) if is_missing else ""
        if isinstance(error, (ConnectionLostError, NoAnswerError)):
            note(f"{_places(rest)}: may be stored: {plain(error)}")
        else:
            note(f"{_places(rest)}: not stored: {plain(error)}{hint and ';'}{hint}")

    def _send_one(self, one: _Message, queue: MessageQueue | None, number: int | None) -> None:
        message = one.message
        topic, _, delay = one.target
        level = int(delay) if delay is not None and delay.isdecimal() else 0
        selector: Selector | None = None
        if queue is None and number is not None:
            selector = partial(_with_number, topic=topic, number=number)
        result = self._producer.send(
            topic, message.body, tags=message.tags, keys=message.keys, properties=message.properties,
            flag=message.flag, delay_level=level, queue=queue, selector=selector,
        )  # fmt: skip
        self._count(one, result.status)

    def _count(self, one: _Message, status: SendStatus) -> None:
        self._sent.messages += 1
        self._sent.bytes += len(one.message.body)
        if status is not SendStatus.SEND_OK:
            self._sent.unsure[status.name] = self._sent.unsure.get(status.name, 0) + 1

    def _queue(self, topic: str, number: int) -> MessageQueue | None:
        """The queue with this number on the next broker; None if the topic does not exist yet."""
        if not self._queues.get(topic):
            self._queues[topic] = run_on_loop(_write_queues(self._access, topic))
        queues = self._queues[topic]
        self._turns[topic, number] += 1
        turn = number + self._turns[topic, number]  # the brokers of queues of one block differ, too
        return _with_number(queues, topic=topic, number=number, turn=turn) if queues else None


async def _write_queues(access: Access, topic: str) -> list[MessageQueue]:
    async with TopicReader(access) as reader:
        route = await reader.find(topic)
        masters = {} if route is None else route.masters()
        return [] if route is None else [queue for queue in route.write_queues(topic) if queue.broker_name in masters]


async def _similar(access: Access, topic: str) -> str:
    """What the line about a topic that does not exist says of topics that do; "" if that is not known."""
    try:
        async with TopicReader(access) as reader:
            known = await reader.topics()
    except RocketcError:
        return ""
    return "" if topic in known else missing_text([topic], known).partition(";")[2]


def _with_number(queues: Sequence[MessageQueue], *, topic: str, number: int, turn: int = 0) -> MessageQueue:
    found = [queue for queue in queues if queue.queue_id == number]
    if not found:
        most = max((queue.queue_id for queue in queues), default=0)
        raise IllegalMessageError(f"topic {topic!r} has the queues 0 to {most}; choose with --queue or --queues")
    return found[turn % len(found)]


def _note_unsent(groups: Sequence[Sequence[_Message]]) -> None:
    """Name the lines of groups that were not sent: in one line of text if no other line is between them."""
    rest = sorted((one for group in groups for one in group), key=lambda one: one.number)
    if rest and _follow_one_another(rest):
        note(f"{_places(rest)}: not stored")
        return
    for group in groups:
        note(f"{_places(group)}: not stored")


def _places(rest: Sequence[_Message]) -> str:
    """The lines of messages. If other lines are between them, the text says what these have and the others do not."""
    block, first, last = rest[0].block, rest[0].number, rest[-1].number
    if first == last:
        return block.place(first)
    text = f"{block.file}, lines {block.first + first} to {block.first + last}"
    return text if _follow_one_another(rest) else f"{text} with {rest[0].target}"


def _follow_one_another(found: Sequence[_Message]) -> bool:
    return found[-1].number - found[0].number == len(found) - 1
