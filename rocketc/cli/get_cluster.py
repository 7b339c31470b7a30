"""rocketc get of a cluster: its brokers find a message by id or key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import click

from rocketc import _layout as layout
from rocketc.cli.cluster_selection import check_topics
from rocketc.cli.exit_codes import DONE, NOT_FOUND
from rocketc.cli.output import Out, note
from rocketc.cli.security_options import Security
from rocketc.client.access import access_to
from rocketc.client.cluster_url import TopicUrl
from rocketc.client.topic_lookup import TopicLookup
from rocketc.format.ids import OffsetId
from rocketc.read._message import Message
from rocketc.read.topics import Topic
from rocketc.remoting.loops import run_on_loop
from rocketc.report.messages import Printer

_MOST = 64  # messages that are asked of each broker, as RocketMQ's tools do


def get_of_cluster(
    url: TopicUrl,
    security: Security,
    topics: tuple[Topic, ...],
    offset_id: OffsetId | None,
    text: str,
    is_key: bool,
    count: int | None,
    decompress: bool,
    show: Printer,
    out: Out,
) -> int:
    """Print the messages with an id or a key, and return the exit code.

    offset_id  what the text is, if it may be an offset id
    is_key     the text is a key, otherwise it is an id
    """
    try:
        access = access_to(url.name_server, security.credentials, security.tls)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if offset_id is None or topics or url.topic is not None:
        named = check_topics(url, topics)
        if len(named) != 1 or not isinstance(named[0], str):
            raise click.UsageError("a cluster is searched in one topic: name it")
        topic: str | None = named[0]
    else:
        topic = None

    async def find() -> Sequence[Message]:
        async with TopicLookup(access, decompress=decompress) as lookup:
            if offset_id is not None and (found := await lookup.at(offset_id, topic)):
                return found
            if topic is None:
                return ()
            texts = [text] if is_key else [text, text.upper()]
            found = await lookup.with_key(topic, texts, most=max(_MOST, count or 0))
            if is_key:
                return found
            return [m for m in found if m.properties.get(layout.PROPERTY_UNIQUE_KEY) in texts]

    found = run_on_loop(find())
    for message in islice(found, count):
        out.write(show(message))
    if found:
        return DONE
    what = f"no message {'' if topic is None else f'of topic {topic} '}has the {'key' if is_key else 'id'} {text!r}"
    hint = "" if topic is not None else "; if it is a unique id, name the topic"
    note(f"{what}{hint}")
    return NOT_FOUND
