"""Registries of consumers and producers, locks and offsets against plain dicts, by random steps."""

import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketc.broker.consumers import IDLE_MS, ClientChannel, ConsumerManager
from rocketc.broker.heartbeat import ConsumerData
from rocketc.broker.locks import LOCK_MS, LOST_LOCK_MS, MessageQueue, RebalanceLockManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.broker.subscriptions import Subscription
from rocketc.remoting.subscribing import MessageModel
from rocketc.tables.offsets import ConsumerOffsets

STEPS = settings(max_examples=40, stateful_step_count=30, deadline=None)
CONNECTIONS = st.sampled_from("abc")
GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(["c1", "c2"])
TOPICS = st.sampled_from(["t", "u"])
SUBSCRIPTIONS = st.dictionaries(TOPICS, st.tuples(st.integers(0, 2), st.sampled_from(["*", "x"])))


class Consumers(RuleBasedStateMachine):
    """ConsumerManager. The model: group -> [model, subscriptions, {connection: (client, time)}]."""

    def __init__(self):
        super().__init__()
        self.now = 0
        self.notices, self.expected = [], []
        self.consumers = ConsumerManager(lambda *notice: self.notices.append(notice))
        self.model = {}

    def changed(self, group):
        if group in self.model and self.model[group][0] is MessageModel.CLUSTERING:
            self.expected += [(connection, group) for connection in self.model[group][2]]

    @rule(
        connection=CONNECTIONS,
        group=GROUPS,
        client=CLIENTS,
        wanted=SUBSCRIPTIONS,
        light=st.booleans(),
        model=st.sampled_from([MessageModel.CLUSTERING, MessageModel.BROADCASTING]),
    )
    def register(self, connection, group, client, wanted, light, model):
        found = self.consumers.register(
            connection,
            ClientChannel(client, "JAVA", 479, self.now),
            ConsumerData(
                group,
                message_model=model,
                subscriptions=tuple(Subscription(t, x, sub_version=v) for t, (v, x) in wanted.items()),
            ),
            fingerprint=1 if light else 0,
            is_light=light,
        )
        known = self.model.setdefault(group, [model, {}, {}])
        known[0] = model
        is_new = connection not in known[2]
        known[2][connection] = (client, self.now)
        before = known[1]
        if not light:
            known[1] = {
                topic: new if topic not in before or new[0] > before[topic][0] else before[topic]
                for topic, new in wanted.items()
            }
        topics_changed = before.keys() != known[1].keys()
        assert found[:2] == (is_new, topics_changed)
        if is_new or topics_changed:
            self.changed(group)

    def leave(self, connection, group):
        del self.model[group][2][connection]
        if not self.model[group][2]:
            del self.model[group]
        self.changed(group)

    @rule(connection=CONNECTIONS, group=GROUPS)
    def unregister(self, connection, group):
        there = group in self.model and connection in self.model[group][2]
        assert self.consumers.unregister(connection, group) is there
        if there:
            self.leave(connection, group)

    @rule(connection=CONNECTIONS)
    def lose(self, connection):
        groups = [group for group, known in self.model.items() if connection in known[2]]
        assert sorted(self.consumers.connection_lost(connection)) == sorted(groups)
        for group in groups:
            self.leave(connection, group)

    @rule(later=st.sampled_from([1, IDLE_MS // 2, IDLE_MS]))
    def expire(self, later):
        self.now += later
        idle = [
            (connection, group)
            for group, known in self.model.items()
            for connection, (_, seen) in known[2].items()
            if self.now - seen > IDLE_MS
        ]
        assert set(self.consumers.expire(self.now)) == {connection for connection, _ in idle}
        for connection, group in idle:
            self.leave(connection, group)

    @invariant()
    def same(self):
        assert {group.name for group in self.consumers.groups()} == set(self.model)
        for name, (model, wanted, channels) in self.model.items():
            group = self.consumers.group(name)
            assert group.message_model is model
            assert {c: (x.client_id, x.last_update) for c, x in group.channels.items()} == channels
            assert {t: (s.sub_version, s.sub_string) for t, s in group.subscriptions.items()} == wanted
        for connection in "abc":
            groups = [group for group, known in self.model.items() if connection in known[2]]
            assert sorted(self.consumers.groups_of(connection)) == sorted(groups)
        assert sorted(self.notices) == sorted(self.expected)


class Producers(RuleBasedStateMachine):
    """ProducerManager. The model: (group, connection) -> (client, time)."""

    def __init__(self):
        super().__init__()
        self.now = 0
        self.producers = ProducerManager()
        self.model = {}

    @rule(connection=CONNECTIONS, group=GROUPS, client=CLIENTS)
    def register(self, connection, group, client):
        is_new = (group, connection) not in self.model
        made = ClientChannel(client, "JAVA", 479, self.now)
        assert self.producers.register(connection, group, made) is is_new
        first = client if is_new else self.model[group, connection][0]
        self.model[group, connection] = (first, self.now)

    @rule(connection=CONNECTIONS, group=GROUPS)
    def unregister(self, connection, group):
        there = self.model.pop((group, connection), None) is not None
        assert self.producers.unregister(connection, group) is there

    @rule(connection=CONNECTIONS)
    def lose(self, connection):
        gone = [key for key in self.model if key[1] == connection]
        assert sorted(self.producers.connection_lost(connection)) == sorted(group for group, _ in gone)
        for key in gone:
            del self.model[key]

    @rule(later=st.sampled_from([1, IDLE_MS]))
    def expire(self, later):
        self.now += later
        idle = [key for key, (_, seen) in self.model.items() if self.now - seen > IDLE_MS]
        assert set(self.producers.expire(self.now)) == {connection for _, connection in idle}
        for key in idle:
            del self.model[key]

    @invariant()
    def same(self):
        found = {
            (group, connection): (client.client_id, client.last_update)
            for group in self.producers.groups()
            for connection, client in self.producers.group(group).items()
        }
        assert found == self.model
        for client in ("c1", "c2"):
            connections = {connection for (_, connection), (name, _) in self.model.items() if name == client}
            found = self.producers.connection_of(client)
            assert found in connections if connections else found is None
        for group in ("g", "h"):
            connections = {connection for name, connection in self.model if name == group}
            found = self.producers.available(group)
            assert found in connections if connections else found is None


class Locks(RuleBasedStateMachine):
    """RebalanceLockManager. The model: (group, queue) -> (client, time)."""

    QUEUES = st.lists(st.builds(MessageQueue, TOPICS, st.just("b"), st.integers(0, 2)), max_size=4)
    MOST = 5

    def __init__(self):
        super().__init__()
        self.now = 0
        self.locks = RebalanceLockManager(lambda group: self.connected, most=self.MOST)
        self.model, self.connected = {}, {"c1"}
        self.looked = 0

    def is_live(self, lock):
        return self.now - lock[1] <= (LOCK_MS if lock[0] in self.connected else LOST_LOCK_MS)

    def forget_expired(self):
        self.model = {key: lock for key, lock in self.model.items() if self.is_live(lock)}

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def lock(self, group, queues, client):
        if len(self.model) >= self.MOST and self.now - self.looked >= 1000:
            self.looked = self.now
            self.forget_expired()
        held = set()
        for queue in queues:
            lock = self.model.get((group, queue))
            if len(self.model) < self.MOST if lock is None else lock[0] == client or not self.is_live(lock):
                self.model[group, queue] = (client, self.now)
                held.add(queue)
        assert self.locks.lock(group, queues, client, self.now) == held

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def unlock(self, group, queues, client):
        freed = {queue for queue in queues if self.model.get((group, queue), (None,))[0] == client}
        assert self.locks.unlock(group, queues, client) == freed
        for queue in freed:
            del self.model[group, queue]

    @rule(group=GROUPS, client=CLIENTS)
    def leave(self, group, client):
        freed = {queue for (name, queue), lock in self.model.items() if name == group and lock[0] == client}
        assert self.locks.unlock_all(group, client) == freed
        for queue in freed:
            del self.model[group, queue]

    @rule(clients=st.sets(CLIENTS))
    def connect(self, clients):
        self.connected = clients

    @rule(later=st.sampled_from([1, 1000, LOST_LOCK_MS, LOCK_MS]))
    def wait(self, later):
        self.now += later

    @rule()
    def expire(self):
        before = len(self.model)
        self.forget_expired()
        assert self.locks.expire(self.now) == before - len(self.model)

    @invariant()
    def same(self):
        for group in ("g", "h"):
            own = {queue: lock for (name, queue), lock in self.model.items() if name == group}
            assert self.locks.count(group) == len(own)
            assert self.locks.all_expired(group, self.now) is not any(map(self.is_live, own.values()))
            for queue, lock in own.items():
                for client in ("c1", "c2"):
                    assert self.locks.is_locked(group, queue, client, self.now) is (
                        lock[0] == client and self.is_live(lock)
                    )


class Offsets(RuleBasedStateMachine):
    """ConsumerOffsetManager. The model: three dicts by (group, topic, queue id)."""

    KEYS = st.tuples(GROUPS, TOPICS, st.integers(0, 1))

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.offsets = ConsumerOffsetManager(ConsumerOffsets(self.folder.name))
        self.committed, self.pulled, self.resets = {}, {}, {}
        self.pause, self.dropped = None, set()

    def teardown(self):
        if self.pause is not None:
            self.resume()
        self.folder.cleanup()

    @rule(key=KEYS, offset=st.integers(-1, 5))
    def commit(self, key, offset):
        self.offsets.commit(*key, offset)
        self.committed[key] = offset

    @rule(key=KEYS, offset=st.integers(0, 5))
    def commit_pull(self, key, offset):
        self.offsets.commit_pull(*key, offset)
        self.pulled[key] = offset

    @rule(key=KEYS, offset=st.integers(0, 5))
    def reset(self, key, offset):
        self.offsets.reset(*key, offset)
        self.committed[key] = self.resets[key] = offset

    @rule(key=KEYS)
    def take_reset(self, key):
        assert self.offsets.take_reset(*key) == self.resets.pop(key, None)

    def forget(self, is_gone, *tables):
        for table in tables:
            for key in [key for key in table if is_gone(key)]:
                del table[key]

    @rule(topic=TOPICS)
    def clean_topic(self, topic):
        self.offsets.clean_topic(topic)
        self.forget(lambda key: key[1] == topic, self.committed, self.pulled, self.resets)

    @rule(group=GROUPS)
    def clean_group(self, group):
        self.offsets.clean_group(group)
        self.forget(lambda key: key[0] == group, self.committed, self.pulled, self.resets)

    @rule()
    def begin_pause(self):
        if self.pause is None:
            self.pause = self.offsets.paused()
            self.pause.__enter__()

    @rule(topic=TOPICS, queue_id=st.sampled_from([None, 0, 1]))
    def drop(self, topic, queue_id):
        if self.pause is None:
            return
        self.offsets.drop({topic} if queue_id is None else {(topic, queue_id)})

        def is_gone(key):
            return key[1] == topic and queue_id in (None, key[2])

        self.forget(is_gone, self.pulled, self.resets)
        self.dropped.add((topic, queue_id))

    @rule()
    def resume(self):
        if self.pause is not None:
            self.pause.__exit__(None, None, None)
            self.pause = None
            for topic, queue_id in self.dropped:
                self.forget(lambda k, t=topic, q=queue_id: k[1] == t and q in (None, k[2]), self.committed)
            self.dropped.clear()

    @rule()
    def restart(self):
        """A new process has what was persisted: no pulls and no resets."""
        if self.pause is None:
            self.offsets.persist()
            self.offsets = ConsumerOffsetManager(ConsumerOffsets(self.folder.name))
            self.pulled, self.resets = {}, {}

    @invariant()
    def same(self):
        for group in ("g", "h"):
            for topic in ("t", "u"):
                for queue_id in (0, 1):
                    key = (group, topic, queue_id)
                    assert self.offsets.pull_offset(*key) == self.pulled.get(key, -1)
                    assert self.offsets.has_reset(*key) is (key in self.resets)
                    if not {(topic, None), (topic, queue_id)} & self.dropped:
                        expected = self.resets.get(key, self.committed.get(key, -1))
                        assert self.offsets.query(*key) == expected


for machine in (Consumers, Producers, Locks, Offsets):
    machine.TestCase.settings = STEPS
TestConsumers, TestProducers = Consumers.TestCase, Producers.TestCase
TestLocks, TestOffsets = Locks.TestCase, Offsets.TestCase
