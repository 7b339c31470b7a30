"""Bodies of requests to a name server and to a broker, on their processors: no socket, no store."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, cast
from unittest import mock

from rocketc.broker.client_processor import ClientProcessor
from rocketc.broker.consumer_processor import ConsumerProcessor
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.lock_processor import LockProcessor
from rocketc.broker.locks import RebalanceLockManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.kv_config import KvConfig
from rocketc.namesrv.processor import NamesrvProcessor
from rocketc.namesrv.routes import RouteTable
from rocketc.remoting import server
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.tables.fastjson import parse
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import TopicConfig, Topics

BROKER = {"brokerName": "a", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "a:2", "brokerId": "0"}


class _Connection:
    """A name for processors, as the connection of a client is."""

    peer = ("here", 1)
    is_lost = False
    waited = 0.0


class _Peer:
    """Asks the processors of a server. An exception in one is an error of this target."""

    def __init__(self, *processors: Any) -> None:
        self._server, self._connection = server.Server(processors), cast(Any, _Connection())

    def ask(self, name: str, body: bytes = b"", fields: dict[str, str] | None = None, *, version: int = 479) -> Command:
        command = Command(CODES[name], fields or {}, body, version=version)
        with mock.patch.object(server._log, "exception", _fail):
            answer = self._server._process(self._connection, command, _fail, print)
        assert answer is not None
        frame = self._server._encode(command, answer)
        [decoded] = FrameDecoder().receive(frame if isinstance(frame, bytes) else b"".join(map(bytes, frame)))
        return Command.decode(*decoded)


def _fail(text: object, *values: object) -> None:
    raise AssertionError(f"{text} {values}")


def namesrv(data: bytes, folder: Path) -> None:
    """A body that a broker or a tool sends, after a byte that says which request it is.

    All registered topics are found again, in strict and in lax JSON, and settings are the same after a restart.
    """
    if not data:
        return
    kind, body = data[0] % 8, data[1:]
    if kind < 4:
        _register(kind, body)
    elif kind == 4:
        _settings(body, folder)
    elif kind == 5:
        _key_values(body, folder)
    else:
        peer = _namesrv(NamesrvConfig(), KvConfig(""))
        assert peer.ask("REGISTER_BROKER", b"", BROKER).code == 0
        if kind == 6:
            peer.ask("QUERY_DATA_VERSION", body, BROKER)
        elif peer.ask("REGISTER_TOPIC_IN_NAMESRV", body, {"topic": "t"}).code == 0:
            _check_route(peer, "t")


def _namesrv(config: NamesrvConfig, kv: KvConfig) -> _Peer:
    return _Peer(NamesrvProcessor(RouteTable(config, lambda: 5), kv, config, lambda: 0))


def _register(kind: int, body: bytes) -> None:
    """Register topics.

    kind  0: the body is JSON; 1 and 2: it is compressed here, for a 5.x and a 4.x broker; 3: it is compressed already
    """
    peer = _namesrv(NamesrvConfig(), KvConfig(""))
    assert peer.ask("REGISTER_BROKER", b"", BROKER).code == 0  # a broker may not begin with one topic
    body = zlib.compress(body, 1) if kind in (1, 2) else body
    fields = {**BROKER, "compressed": "false" if kind == 0 else "true", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    version = 400 if kind == 2 else 479
    if peer.ask("REGISTER_BROKER", body, fields, version=version).code != 0:
        return
    topics = json.loads(peer.ask("GET_ALL_TOPIC_LIST_FROM_NAMESERVER").body)["topicList"]
    for topic in topics[:20]:
        _check_route(peer, topic)
    assert parse(peer.ask("GET_BROKER_CLUSTER_INFO").body)
    stored = peer.ask("QUERY_DATA_VERSION", b"{}", BROKER).body
    assert peer.ask("QUERY_DATA_VERSION", stored, BROKER).fields["changed"] == "false"
    assert peer.ask("REGISTER_BROKER", body, fields, version=version).code == 0
    assert json.loads(peer.ask("GET_ALL_TOPIC_LIST_FROM_NAMESERVER").body)["topicList"] == topics


def _check_route(peer: _Peer, topic: str) -> None:
    """Assert that the strict and the lax JSON of a route are the same."""
    fields = {"topic": topic}
    lax = peer.ask("GET_ROUTEINFO_BY_TOPIC", b"", fields, version=400)
    strict = peer.ask("GET_ROUTEINFO_BY_TOPIC", b"", {**fields, "acceptStandardJsonOnly": "true"})
    assert lax.code == strict.code
    if lax.code == 0:
        assert json.loads(json.dumps(parse(lax.body))) == json.loads(strict.body)


def _settings(body: bytes, folder: Path) -> None:
    """UPDATE_NAMESRV_CONFIG: the settings are the same after they were written and read."""
    config = NamesrvConfig()
    peer = _namesrv(config, KvConfig(""))
    if peer.ask("UPDATE_NAMESRV_CONFIG", body).code == 0:
        path = folder / "namesrv.conf"
        path.write_text(config.file_text(), "ascii")
        again, _ = NamesrvConfig.read(path)
        again.config_store_path = config.config_store_path
        assert again.text() == config.text() == peer.ask("GET_NAMESRV_CONFIG").body.decode()


def _key_values(body: bytes, folder: Path) -> None:
    """Namespace, key and value, separated by a zero byte, in several requests: the file holds the same."""
    path = folder / "kvConfig.json"
    peer = _namesrv(NamesrvConfig(), KvConfig(path))
    words = body.decode("utf-8", "replace").split("\0")[:12]
    for at in range(0, len(words) - 2, 3):
        fields = dict(zip(("namespace", "key", "value"), words[at:], strict=False))
        if peer.ask("PUT_KV_CONFIG", b"", fields).code == 0:
            assert peer.ask("GET_KV_CONFIG", b"", fields).fields.get("value", "") == fields["value"]
        if len(words[at]) == 1:
            peer.ask("DELETE_KV_CONFIG", b"", fields)
        again = _namesrv(NamesrvConfig(), KvConfig(path))
        lists = [one.ask("GET_KVLIST_BY_NAMESPACE", b"", fields) for one in (peer, again)]
        tables = [json.loads(one.body) if one.code == 0 else one.remark for one in lists]
        assert tables[0] == tables[1]  # names of one bucket of a HashMap may be in another order


def broker(data: bytes, folder: Path) -> None:
    """Bodies that clients send, after a byte that says which request it is; or the fields of offsets.

    Nothing stays of a connection that is lost, and the tables are the same after they were written and read.
    """
    if data:
        kind, body = data[0] % 6, data[1:]
        if kind < 3:
            _Clients(folder).check(kind, body)
        elif kind == 3:
            _offsets(body, folder)
        else:
            _locks(body)


class _Clients:
    """The registries of a broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups, self._topics = SubscriptionGroups(folder), Topics(folder)
        groups = GroupManager(self._groups)
        self.consumers, self.producers = ConsumerManager(lambda *_: None), ProducerManager()
        offsets = ConsumerOffsetManager(ConsumerOffsets(folder))
        self._peer = _Peer(
            ClientProcessor(
                self.consumers,
                self.producers,
                groups,
                topics=self._topics,
                make_retry_topic=self._make_retry_topic,
                clock=lambda: 0,
                is_property_filter_on=lambda: True,
            ),
            ConsumerProcessor(
                self.consumers,
                offsets,
                groups,
                topics=self._topics,
                min_offset=lambda topic, queue_id: 0,
                is_first_in_memory=lambda topic, queue_id: True,
            ),
        )

    def _make_retry_topic(self, name: str, queues: int, *, order: bool, sys_flag: int) -> None:
        self._topics.add(TopicConfig(name, queues, queues, order=order, topic_sys_flag=sys_flag))

    def check(self, kind: int, body: bytes) -> None:
        if kind == 2:
            self._peer.ask("CHECK_CLIENT_CONFIG", body)
            return
        if self._peer.ask("HEART_BEAT", body).code == 0:
            assert self._peer.ask("HEART_BEAT", body).code == 0
            client_id = json.loads(body, strict=False).get("clientID")
            for group in self.consumers.groups()[:20]:
                answer = self._peer.ask("GET_CONSUMER_LIST_BY_GROUP", b"", {"consumerGroup": group.name})
                assert set(json.loads(answer.body)["consumerIdList"]) == {client_id}
        for group in self.consumers.groups():
            for connection in list(group.channels):
                self.consumers.connection_lost(connection)
        assert not self.consumers.groups()
        self._groups.persist()
        self._topics.persist()
        assert dict(SubscriptionGroups(self._folder).items()) == dict(self._groups.items())
        assert dict(Topics(self._folder).items()) == dict(self._topics.items())


def _offsets(body: bytes, folder: Path) -> None:
    """Commits, as words between zero bytes: group, topic, queue id, offset. A commit is found, also after a restart."""
    groups, topics = GroupManager(SubscriptionGroups(folder)), Topics(folder)
    words = body.decode("utf-8", "replace").split("\0")[:16]
    offsets = ConsumerOffsetManager(ConsumerOffsets(folder))

    def peer() -> _Peer:
        return _Peer(
            ConsumerProcessor(
                ConsumerManager(lambda *_: None),
                offsets,
                groups,
                topics=topics,
                min_offset=lambda topic, queue_id: 0,
                is_first_in_memory=lambda topic, queue_id: False,
            )
        )

    for at in range(0, len(words) - 3, 4):
        fields = dict(zip(("consumerGroup", "topic", "queueId", "commitOffset"), words[at:], strict=False))
        groups.find(fields["consumerGroup"])
        topics.add(TopicConfig(fields["topic"] or "t", 4, 4))
        if peer().ask("UPDATE_CONSUMER_OFFSET", b"", fields).code == 0:
            found = peer().ask("QUERY_CONSUMER_OFFSET", b"", fields)
            offsets.persist()
            offsets = ConsumerOffsetManager(ConsumerOffsets(folder))
            assert found == peer().ask("QUERY_CONSUMER_OFFSET", b"", fields)
            if int(fields["commitOffset"]) >= 0:
                assert int(found.fields["offset"]) == int(fields["commitOffset"])


def _locks(body: bytes) -> None:
    """Locks and unlocks: another client does not get what is locked, and an unlock frees everything."""
    locks = RebalanceLockManager(lambda group: ())
    peer = _Peer(LockProcessor(locks, clock=lambda: 0))
    answer = peer.ask("LOCK_BATCH_MQ", body)
    if answer.code != 0:
        return
    held = json.loads(answer.body)["lockOKMQSet"]
    assert len(held) <= len(json.loads(body, strict=False).get("mqSet") or ())
    data = json.loads(body, strict=False)
    group, client_id = data.get("consumerGroup") or "", data.get("clientId") or ""
    other = {"consumerGroup": group, "clientId": client_id[1:] + "-", "mqSet": held}
    if other["clientId"] != client_id:
        assert json.loads(peer.ask("LOCK_BATCH_MQ", json.dumps(other).encode()).body)["lockOKMQSet"] == []
    assert json.loads(peer.ask("LOCK_BATCH_MQ", body).body)["lockOKMQSet"] == held
    assert peer.ask("UNLOCK_BATCH_MQ", body).code == 0
    assert locks.count(group) == 0
