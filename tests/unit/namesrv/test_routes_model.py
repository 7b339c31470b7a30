"""The route table against a model of flat lists, under any sequence of events."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.routes import DataVersion, Registered, Registration, RouteTable
from rocketc.remoting.route_data import QueueData

NAMES = st.sampled_from(["a", "b"])
CLUSTERS = st.sampled_from(["C", "D"])
ADDRESSES = st.sampled_from(["1", "2", "3"])
IDS = st.sampled_from([0, 1, 2])
TOPICS = ["t", "u", "v"]
CONNECTIONS = st.sampled_from(["x", "y"])
QUEUES = st.builds(QueueData, st.just(""), st.integers(1, 3), st.integers(1, 3), st.sampled_from([2, 4, 6, 7]))
VERSIONS = st.builds(DataVersion, st.integers(0, 1), st.just(0), st.integers(0, 1))


class RouteMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.config = NamesrvConfig()
        self.table = RouteTable(self.config, lambda: 0)
        self.now = 0
        self.members = []  # dicts, in the order of their registrations
        self.queues = {}  # (topic, name) -> QueueData
        self.acting = {}  # name -> whether its last registration allows a stand-in
        self.cluster = {}  # name -> the cluster of its first registration

    # model

    def of(self, name):
        return [member for member in self.members if member["name"] == name]

    def drop(self, member):
        """Remove a member; returns whether it was the last one of its name."""
        self.members.remove(member)
        if not self.of(member["name"]):
            self.queues = {key: queue for key, queue in self.queues.items() if key[1] != member["name"]}
            del self.cluster[member["name"]]

    def leave(self, member):
        self.drop(member)
        if member["id"] == 0 and self.acting[member["name"]]:
            self.change(member["name"], lambda perm: perm & ~2)

    def change(self, name, to):
        keys = [key for key in self.queues if key[1] == name]
        for key in keys:
            self.queues[key] = self.queues[key]._replace(perm=to(self.queues[key].perm))
        return len(keys)

    # events

    @rule(
        name=NAMES, cluster=CLUSTERS, address=ADDRESSES, id=IDS, connection=CONNECTIONS, version=VERSIONS,
        topics=st.dictionaries(st.sampled_from(TOPICS), QUEUES), timeout=st.sampled_from([None, 10]),
        acting=st.sampled_from([None, False, True]),
    )  # fmt: skip
    def register(self, name, cluster, address, id, connection, version, topics, timeout, acting):
        got = self.table.register(
            Registration(name, cluster, address, id, f"ha{address}", topics, version, (), timeout, acting),
            connection,
            self.now,
        )
        holder = next((member for member in self.of(name) if member["id"] == id), None)
        if holder and holder["address"] != address and holder["version"].state_version > version.state_version:
            assert got == Registered()
            return
        if not holder and len(topics) == 1:
            assert got.error
            return
        before = next((m for m in self.members if (m["cluster"], m["address"]) == (cluster, address)), None)
        is_new = not holder or not before or before["version"] != version
        if before and before["name"] != name:
            self.leave(before)
        self.cluster.setdefault(name, cluster)
        replaced = [member for member in self.of(name) if member["id"] == id or member["address"] == address]
        self.members = [member for member in self.members if member not in replaced]
        self.members.append(
            {"name": name, "cluster": cluster, "address": address, "id": id, "connection": connection,
             "version": version, "timeout": timeout or 120_000, "last": self.now}
        )  # fmt: skip
        self.acting[name] = bool(acting)
        ids = {member["id"] for member in self.of(name)}
        is_first_slave = acting is not None and 0 not in ids and id == min(ids)
        if id == 0 or is_first_slave:
            if self.config.delete_topic_with_broker_registration:
                self.queues = {k: q for k, q in self.queues.items() if k[1] != name or k[0] in topics}
            for topic, queue in topics.items():
                if is_new or (topic, name) not in self.queues:
                    perm = queue.perm & ~2 if is_first_slave and acting else queue.perm
                    self.queues[topic, name] = queue._replace(broker_name=name, perm=perm)
        master = next((m for m in self.of(name) if m["id"] == 0 and m["cluster"] == cluster), None)
        expected = (master["address"], f"ha{master['address']}") if id and master else (None, None)
        assert got == Registered(None, *expected)

    @rule(name=NAMES, cluster=CLUSTERS, address=ADDRESSES)
    def unregister(self, name, cluster, address):
        found = [m for m in self.of(name) if (m["cluster"], m["address"]) == (cluster, address)]
        assert self.table.unregister(name, cluster, address) == bool(found)
        for member in found:
            self.leave(member)

    @rule(connection=CONNECTIONS)
    def lose(self, connection):
        found = [member for member in self.members if member["connection"] == connection]
        assert sorted(self.table.lost(connection)) == sorted(member["address"] for member in found)
        for member in found:
            self.leave(member)

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def heartbeat(self, cluster, address):
        self.table.heartbeat(cluster, address, self.now)
        for member in self.members:
            if (member["cluster"], member["address"]) == (cluster, address):
                member["last"] = self.now

    @rule(ms=st.sampled_from([1, 6, 100_000]))
    def time_passes(self, ms):
        self.now += ms
        found = [member for member in self.members if self.now - member["last"] > member["timeout"]]
        gone = self.table.expire(self.now)
        assert sorted(gone) == sorted((member["address"], member["connection"]) for member in found)
        for member in found:
            self.leave(member)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | CLUSTERS)
    def delete_topic(self, topic, cluster):
        self.table.delete_topic(topic, cluster)
        names = {member["name"] for member in self.members if cluster in (None, member["cluster"])}
        self.queues = {key: queue for key, queue in self.queues.items() if key[0] != topic or key[1] not in names}

    @rule(topic=st.sampled_from(TOPICS), queue=QUEUES, name=NAMES)
    def register_topic(self, topic, queue, name):
        self.table.register_topic(topic, [queue._replace(broker_name=name)])
        if self.of(name):
            self.queues[topic, name] = queue._replace(broker_name=name)

    @rule(name=NAMES)
    def wipe(self, name):
        assert self.table.wipe_write_perm(name) == self.change(name, lambda perm: perm & ~2)

    @rule(name=NAMES)
    def add(self, name):
        assert self.table.add_write_perm(name) == self.change(name, lambda perm: 6)

    @rule(deletes=st.booleans(), acting=st.booleans())
    def change_settings(self, deletes, acting):
        self.config.delete_topic_with_broker_registration = deletes
        self.config.support_acting_master = acting

    # what can be seen

    @invariant()
    def routes(self):
        for topic in TOPICS:
            queues = {name: queue for (found, name), queue in self.queues.items() if found == topic}
            route = self.table.route(topic)
            if not queues:
                assert route is None
                continue
            assert {queue.broker_name: queue for queue in route.queues} == queues
            assert {data.name for data in route.brokers} == queues.keys()
            for data in route.brokers:
                ids = {member["id"]: member["address"] for member in self.of(data.name)}
                read_only = not queues[data.name].perm & 2
                if 0 not in ids and self.config.support_acting_master and self.acting[data.name] and read_only:
                    ids[0] = ids.pop(min(ids))
                assert data.addresses == ids and list(data.addresses) == sorted(ids)
                assert (data.cluster, data.acting_master) == (self.cluster[data.name], self.acting[data.name])

    @invariant()
    def lists(self):
        assert set(self.table.topics()) == {topic for topic, _ in self.queues}
        assert len(self.table.topics()) == len({topic for topic, _ in self.queues})
        found = {name: set(names) for name, names in self.table.clusters().items()}
        expected = {}
        for member in self.members:
            expected.setdefault(member["cluster"], set()).add(member["name"])
        assert found == expected
        for cluster, names in expected.items():
            assert set(self.table.topics(cluster)) == {topic for topic, name in self.queues if name in names}
        assert self.table.brokers().keys() == {member["name"] for member in self.members}
        for member in self.members:
            assert self.table.members(member["name"])[member["id"]] == member["address"]
            assert self.table.data_version(member["cluster"], member["address"]) == member["version"]
        assert self.table._queue_datas == len(self.queues)


RouteMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRoutes = RouteMachine.TestCase
