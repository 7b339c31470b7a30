"""The route table: RocketMQ's RouteInfoManagerTest clause by clause, and what a name server of 5.3.3 was seen to do."""

import pytest

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.routes import SILENT_MS, DataVersion, Registered, Registration, RouteTable
from rocketc.remoting.route_data import BrokerData, QueueData

CLUSTER = "DefaultCluster"


@pytest.fixture
def config():
    return NamesrvConfig()


@pytest.fixture
def table(config):
    return RouteTable(config, lambda: 1_700_000_000_000)


def broker(name="a", address="a:0", id=0, topics=("orders", "bills"), *, cluster=CLUSTER, version=(0, 0, 1), **more):
    topics = topics if isinstance(topics, dict) else dict.fromkeys(topics, QueueData("", 4, 5))
    return Registration(name, cluster, address, id, f"{address}/ha", topics, DataVersion(*version), **more)


def register(table, *args, connection=None, now=0, **more):
    made = broker(*args, **more)
    return table.register(made, connection or made.address, now)


def addresses(table, topic="orders"):
    route = table.route(topic)
    return None if route is None else {data.name: data.addresses for data in route.brokers}


def perms(table, topic="orders"):
    return {queue.broker_name: queue.perm for queue in table.route(topic).queues}


def test_an_unknown_topic(table):
    assert table.route("orders") is None and table.topics() == []


def test_the_route_of_a_topic(table):
    register(table, topics={"orders": QueueData("", 3, 5, 7, 2), "bills": QueueData("")}, filter_servers=("f:1",))
    route = table.route("orders")
    assert route.brokers == [BrokerData("a", CLUSTER, {0: "a:0"}, False)]
    assert route.queues == [QueueData("a", 3, 5, 7, 2)] and route.filter_servers == {"a:0": ("f:1",)}
    assert table.route("bills").queues == [QueueData("a", 16, 16, 6, 0)]


def test_filter_servers_are_those_of_the_last_registration(table):
    register(table, filter_servers=("f:1",))
    register(table, filter_servers=("f:2", "f:3"))
    assert table.route("orders").filter_servers == {"a:0": ("f:2", "f:3")}
    register(table)
    assert table.route("orders").filter_servers == {}


def test_only_a_slave_gets_the_address_of_its_master(table):
    assert register(table) == Registered()
    assert register(table, address="a:1", id=1) == Registered(None, "a:0", "a:0/ha")
    assert addresses(table) == {"a": {0: "a:0", 1: "a:1"}}


def test_a_slave_whose_master_is_not_there_or_in_another_cluster(table):
    assert register(table, address="a:1", id=1) == Registered()
    register(table)
    assert register(table, address="a:2", id=2, cluster="other") == Registered()


def test_a_slave_brings_no_topics(table):
    register(table)
    register(table, address="a:1", id=1, topics=("own", "orders"))
    assert table.route("own") is None


def test_a_new_topic_of_the_master_lists_the_slave_too(table):
    register(table)
    register(table, address="a:1", id=1)
    register(table, topics=("orders", "bills", "new"), version=(0, 0, 2))
    assert addresses(table, "new") == {"a": {0: "a:0", 1: "a:1"}}


def test_two_brokers_with_one_topic(table):
    register(table)
    register(table, "b", "b:0")
    assert addresses(table) == {"a": {0: "a:0"}, "b": {0: "b:0"}}
    assert [queue.broker_name for queue in table.route("orders").queues] == ["a", "b"]


def test_a_registered_topic_changes_only_with_the_data_version(table):
    register(table)
    changed = {"orders": QueueData("", 9, 9, 4), "bills": QueueData("")}
    register(table, topics=changed)
    assert table.route("orders").queues == [QueueData("a", 4, 5)]
    for number, version in enumerate(
        [(0, 0, 2), (0, 1, 2), (1, 1, 2), (1, 1, 1)]
    ):  # each number counts; also backwards
        register(table, topics={**changed, "orders": QueueData("", number)}, version=version)
        assert table.route("orders").queues[0].read_queue_nums == number


def test_a_new_topic_counts_even_with_the_same_data_version(table):
    register(table)
    register(table, topics=("new", "newer"))
    assert addresses(table, "new") == {"a": {0: "a:0"}}


def test_a_topic_that_is_not_registered_again_stays(table, config):
    register(table)
    register(table, topics=("orders", "new"), version=(0, 0, 2))
    assert table.route("bills") is not None
    config.delete_topic_with_broker_registration = True
    register(table, "b", "b:0")
    register(table, topics=("orders", "new"), version=(0, 0, 2))
    assert addresses(table, "bills") == {"b": {0: "b:0"}}
    register(table, topics=(), version=(0, 0, 3))
    assert table.route("new") is None and addresses(table) == {"b": {0: "b:0"}}


def test_one_topic_alone_is_only_accepted_from_a_registered_broker(table):
    assert register(table, topics=("orders",)) == Registered(error="register broker failed")
    assert table.brokers() == {} and table.clusters() == {}
    register(table)
    assert register(table, topics=("new",)).error is None
    assert addresses(table, "new") == {"a": {0: "a:0"}}
    assert register(table, address="a:1", id=1, topics=("new",)).error is not None
    assert register(table, "b", "b:0", topics=()).error is None


def test_register_one_topic_after_its_broker(table):
    register(table)
    table.register_topic("single", [QueueData("a", 1, 2, 6), QueueData("unknown")])
    assert table.route("single") is None
    table.register_topic("single", [QueueData("a", 1, 2, 6)])
    assert table.route("single").queues == [QueueData("a", 1, 2, 6)]
    table.register_topic("single", [QueueData("a", 3, 3, 4)])
    assert table.route("single").queues == [QueueData("a", 3, 3, 4)]
    table.register_topic("nowhere", [QueueData("unknown")])
    table.register_topic("nowhere", [])
    assert table.route("nowhere") is None


def test_another_address_takes_an_id(table):
    register(table)
    register(table, address="a:9")
    assert addresses(table) == {"a": {0: "a:9"}}
    assert table.data_version(CLUSTER, "a:0") is None


def test_an_address_has_one_id(table):
    register(table)
    register(table, address="a:1", id=1)
    register(table, address="a:0", id=2, version=(0, 0, 2))
    assert addresses(table) == {"a": {1: "a:1", 2: "a:0"}}


def test_master_and_slave_change_roles(table):
    register(table)
    register(table, address="a:1", id=1)
    register(table, address="a:1", id=0, version=(0, 0, 2))
    register(table, address="a:0", id=1, version=(0, 0, 2))
    assert addresses(table) == {"a": {0: "a:1", 1: "a:0"}}


def test_an_address_has_one_broker_name(table):
    register(table)
    register(table, "b", "a:0", topics=("orders", "new"))
    assert addresses(table) == {"b": {0: "a:0"}} and table.route("bills") is None


def test_the_master_of_an_earlier_state_is_ignored(table):
    register(table, version=(5, 0, 1))
    assert register(table, address="a:9", topics=("new", "newer"), version=(4, 0, 99)) == Registered()
    assert addresses(table) == {"a": {0: "a:0"}} and table.route("new") is None
    register(table, address="a:9", version=(5, 0, 0))
    assert addresses(table) == {"a": {0: "a:9"}}
    register(table, address="a:9", version=(1, 0, 0))  # the address that has the id may go back
    assert table.data_version(CLUSTER, "a:9") == DataVersion(1, 0, 0)


def test_the_data_version(table):
    assert table.data_version(CLUSTER, "a:0") is None
    register(table, version=(1, 2, 3))
    assert table.data_version(CLUSTER, "a:0") == DataVersion(1, 2, 3)
    assert table.data_version("other", "a:0") is None
    table.register(Registration("b", CLUSTER, "b:0", 0), "b:0", 0)
    assert table.data_version(CLUSTER, "b:0") == DataVersion(0, 1_700_000_000_000, 0)


# ---------------------------------------------------------------- the end of brokers


def test_unregister_the_only_broker(table):
    register(table)
    assert table.unregister("a", CLUSTER, "a:0")
    assert table.route("orders") is None and table.topics() == []
    assert table.brokers() == {} and table.clusters() == {} and table.data_version(CLUSTER, "a:0") is None
    assert not table.unregister("a", CLUSTER, "a:0")


@pytest.mark.parametrize("wrong", [("b", CLUSTER, "a:0"), ("a", "other", "a:0"), ("a", CLUSTER, "a:1")])
def test_unregister_what_is_not_there(table, wrong):
    register(table)
    assert not table.unregister(*wrong)
    assert addresses(table) == {"a": {0: "a:0"}}


def test_unregister_the_slave_keeps_the_master(table):
    register(table)
    register(table, address="a:1", id=1)
    table.unregister("a", CLUSTER, "a:1")
    assert addresses(table) == {"a": {0: "a:0"}} and perms(table) == {"a": 6}


def test_unregister_the_master_without_acting_master(table):
    register(table)
    register(table, address="a:1", id=1)
    table.unregister("a", CLUSTER, "a:0")
    assert addresses(table) == {"a": {1: "a:1"}} and perms(table) == {"a": 6}


def test_unregister_one_of_two_brokers(table):
    register(table)
    register(table, "b", "b:0")
    table.unregister("a", CLUSTER, "a:0")
    assert addresses(table) == {"b": {0: "b:0"}} and table.clusters() == {CLUSTER: ["b"]}


def test_a_lost_connection_removes_its_brokers_at_once(table):
    register(table, connection="first")
    register(table, "b", "b:0", connection="first")
    register(table, "c", "c:0", connection="second")
    assert table.lost("third") == []
    assert table.lost("first") == ["a:0", "b:0"]
    assert addresses(table) == {"c": {0: "c:0"}}


def test_the_connection_of_the_last_registration_counts(table):
    register(table, connection="old")
    register(table, connection="new")
    assert table.lost("old") == [] and addresses(table) == {"a": {0: "a:0"}}
    assert table.lost("new") == ["a:0"]


def test_silent_brokers_expire(table):
    register(table, now=1000)
    register(table, "b", "b:0", timeout=3000, now=1000)
    assert table.expire(4000) == [] and table.expire(4001) == [("b:0", "b:0")]
    assert table.expire(1000 + SILENT_MS) == []
    table.heartbeat(CLUSTER, "a:0", 2000)
    table.heartbeat(CLUSTER, "unknown", 2000)
    assert table.expire(1001 + SILENT_MS) == []
    assert table.expire(2001 + SILENT_MS) == [("a:0", "a:0")]
    assert table.topics() == []


def test_a_registration_is_a_sign_of_life(table):
    register(table, now=0)
    register(table, now=SILENT_MS)
    assert table.expire(2 * SILENT_MS) == []


@pytest.mark.parametrize("timeout", [0, -1, -(1 << 63), (1 << 63) - 1])
def test_odd_times_of_silence(table, timeout):
    register(table, timeout=timeout, now=5)
    assert len(table.expire(6)) == (timeout <= 0)


# ---------------------------------------------------------------- a slave in place of its master


@pytest.fixture
def acting(table, config):
    """The master a:0 with the slaves a:1 and a:2, which may stand in for it."""
    config.support_acting_master = True
    for id in (0, 1, 2):
        register(table, address=f"a:{id}", id=id, acting_master=True)
    return table


def test_a_slave_takes_the_place_of_its_master(acting):
    acting.unregister("a", CLUSTER, "a:0")
    assert addresses(acting) == {"a": {0: "a:1", 2: "a:2"}} and perms(acting) == {"a": 4}
    assert acting.brokers()["a"].addresses == {1: "a:1", 2: "a:2"}  # only routes show it
    assert acting.members("a") == {1: "a:1", 2: "a:2"}
    acting.unregister("a", CLUSTER, "a:1")
    assert addresses(acting) == {"a": {0: "a:2"}}
    acting.unregister("a", CLUSTER, "a:2")
    assert acting.route("orders") is None


def test_the_setting_decides_when_a_route_is_asked_for(acting, config):
    acting.lost("a:0")
    config.support_acting_master = False
    assert addresses(acting) == {"a": {1: "a:1", 2: "a:2"}} and perms(acting) == {"a": 4}


def test_a_writable_topic_shows_the_real_ids(acting):
    acting.lost("a:0")
    acting.add_write_perm("a")
    assert addresses(acting) == {"a": {1: "a:1", 2: "a:2"}} and perms(acting) == {"a": 6}


def test_the_topic_of_the_brokers_themselves_shows_the_real_ids(acting):
    register(acting, topics=("rmq_sys_SYNC_BROKER_MEMBER_a", "orders"), version=(0, 0, 2), acting_master=True)
    acting.lost("a:0")
    assert addresses(acting, "rmq_sys_SYNC_BROKER_MEMBER_a") == {"a": {1: "a:1", 2: "a:2"}}
    assert addresses(acting) == {"a": {0: "a:1", 2: "a:2"}}


def test_the_slave_with_the_lowest_id_registers_topics_for_reading(acting):
    acting.lost("a:0")
    register(acting, address="a:2", id=2, topics=("of-2", "orders"), version=(0, 0, 2), acting_master=True)
    assert acting.route("of-2") is None
    register(acting, address="a:1", id=1, topics=("of-1", "orders"), version=(0, 0, 2), acting_master=True)
    assert perms(acting, "of-1") == {"a": 4} and addresses(acting, "of-1") == {"a": {0: "a:1", 2: "a:2"}}


def test_the_master_comes_back(acting):
    acting.lost("a:0")
    register(acting, acting_master=True)
    assert addresses(acting) == {"a": {0: "a:0", 1: "a:1", 2: "a:2"}} and perms(acting) == {"a": 6}


def test_brokers_that_do_not_allow_it(table, config):
    config.support_acting_master = True
    register(table)
    register(table, address="a:1", id=1)
    table.lost("a:0")
    assert addresses(table) == {"a": {1: "a:1"}} and perms(table) == {"a": 6}


@pytest.mark.parametrize(("acting_master", "perm"), [(False, 6), (True, 4)])
def test_a_slave_that_registers_alone(table, acting_master, perm):
    """The name server was restarted while the master was down."""
    register(table, address="a:2", id=2, acting_master=acting_master)
    assert addresses(table) == {"a": {2: "a:2"}} and perms(table) == {"a": perm}
    register(table, address="a:1", id=1, topics=("own", "orders"), acting_master=acting_master)
    register(table, address="a:2", id=2, topics=("of-2", "more"), version=(0, 0, 2), acting_master=acting_master)
    assert table.route("of-2") is None and perms(table, "own") == {"a": perm}
    register(table, acting_master=acting_master)
    assert addresses(table) == {"a": {0: "a:0", 1: "a:1", 2: "a:2"}} and perms(table) == {"a": 6}


def test_a_slave_of_an_older_release_that_registers_alone(table):
    register(table, address="a:1", id=1)
    assert table.route("orders") is None and addresses(table) is None


# ---------------------------------------------------------------- permissions and topics


@pytest.mark.parametrize("perm", range(8))
def test_add_the_write_permission_of_any_topic(table, perm):
    """A name server of 5.3.3 sets 6."""
    register(table, topics=dict.fromkeys(("orders", "more"), QueueData("", perm=perm)))
    assert table.wipe_write_perm("a") == 2 and perms(table) == {"a": perm & ~2}
    assert table.add_write_perm("a") == 2 and perms(table) == {"a": 6}


def test_wipe_and_add_the_write_permission(table):
    register(table, topics=("orders",) + ("more",))
    register(table, "b", "b:0", topics={"orders": QueueData("", perm=7), "own": QueueData("", perm=4)})
    assert table.wipe_write_perm("b") == 2 and perms(table) == {"a": 6, "b": 5}
    assert table.add_write_perm("b") == 2 and perms(table) == {"a": 6, "b": 6} and perms(table, "own") == {"b": 6}
    assert table.wipe_write_perm("unknown") == table.add_write_perm("unknown") == 0


def test_one_topic_loses_and_gets_its_write_permission(table):
    register(table, topics=())
    register(table, topics=("orders",))
    assert table.wipe_write_perm("a") == 1 and perms(table) == {"a": 4}
    assert table.add_write_perm("a") == 1 and perms(table) == {"a": 6}


def test_delete_a_topic(table):
    register(table)
    register(table, "b", "b:0", cluster="other")
    table.delete_topic("orders", "unknown")
    assert perms(table) == {"a": 6, "b": 6}
    table.delete_topic("orders", "other")
    assert perms(table) == {"a": 6}
    table.delete_topic("bills")
    table.delete_topic("unknown")
    assert table.route("bills") is None and table.topics() == ["orders"]


def test_the_lists_of_topics(table):
    register(
        table,
        topics={name: QueueData("", topic_sys_flag=flag) for flag, name in enumerate(["no", "unit", "sub", "both"])},
    )
    register(table, "b", "b:0", topics=("no", "own"), cluster="other")
    assert set(table.topics()) == {"no", "unit", "sub", "both", "own"}
    assert set(table.topics(CLUSTER)) == {"no", "unit", "sub", "both"} and set(table.topics("other")) == {"no", "own"}
    assert table.topics("unknown") == []
    assert set(table.topics_by_flag(1)) == {"unit", "both"} and set(table.topics_by_flag(2)) == {"sub", "both"}
    assert table.topics_by_flag(2, 1) == ["sub"]
    names, address = table.system_topics()
    assert set(names) == {"a", "b", CLUSTER, "other"} and address in ("a:0", "b:0")


def test_no_broker_at_all(table):
    assert table.system_topics() == ([], None) and table.members("a") == {}


def test_the_clusters(table):
    register(table)
    register(table, address="a:1", id=1, cluster="other")
    assert table.clusters() == {CLUSTER: ["a"], "other": ["a"]}
    assert table.brokers() == {"a": BrokerData("a", CLUSTER, {0: "a:0", 1: "a:1"}, False)}
    table.unregister("a", "other", "a:1")
    assert table.clusters() == {CLUSTER: ["a"]}


# ---------------------------------------------------------------- limits


def test_the_limit_of_brokers(config):
    table = RouteTable(config, lambda: 0, most_brokers=2)
    register(table)
    register(table, address="a:1", id=1)
    assert register(table, "b", "b:0").error == "there are 2 brokers already"
    assert table.clusters() == {CLUSTER: ["a"]}
    assert register(table).error is None


def test_the_limit_of_brokers_of_a_connection(config):
    table = RouteTable(config, lambda: 0, most_brokers_of_peer=2)
    for name in "ab":
        assert register(table, name, f"{name}:0", connection="one").error is None
    assert register(table, "c", "c:0", connection="one").error == "this connection has registered 2 brokers already"
    assert register(table, "a", "a:0", connection="one").error is None  # again
    assert register(table, "c", "c:0", connection="two").error is None
    assert register(table, "c", "c:0", connection="one").error is not None  # that of another connection
    assert table.unregister("a", CLUSTER, "a:0")
    assert register(table, "c", "c:0", connection="one").error is None
    assert table.lost("two") == [] and table.lost("one") == ["b:0", "c:0"] and table.clusters() == {}


def test_the_limit_of_topics_of_a_connection(config):
    table = RouteTable(config, lambda: 0, most_queue_datas_of_peer=4)
    assert register(table, "a", "a:0", connection="one", topics=("t1", "t2", "t3")).error is None
    refused = register(table, "b", "b:0", connection="one", topics=("t1", "t2"))
    assert refused.error == "this connection would have registered more than 4 pairs of topic and broker"
    assert table.members("b") == {} and len(table.route("t1").queues) == 1
    assert register(table, "b", "b:0", connection="two", topics=("t1", "t2")).error is None
    # Each topic that a broker registers once stays, whatever it registers later.
    assert register(table, "a", "a:0", connection="one", topics=("t4", "t5"), version=(0, 0, 2)).error is not None
    assert table.register_topic("t4", [QueueData("a")]) is None
    assert table.register_topic("t5", [QueueData("a"), QueueData("b")]) == "a broker would have more than 4 topics"
    assert table.route("t5") is None and table.register_topic("t4", [QueueData("a", 1)]) is None
    table.delete_topic("t1")
    assert table.register_topic("t5", [QueueData("a"), QueueData("b")]) is None
    table.lost("one")
    assert register(table, "a", "a:0", connection="one", topics=("t1", "t2", "t3", "t4")).error is None


def test_the_limit_of_topics(config):
    table = RouteTable(config, lambda: 0, most_queue_datas=3)
    register(table)
    assert "more than 3 pairs" in register(table, "b", "b:0").error
    assert register(table, topics=("orders", "bills", "third"), version=(0, 0, 2)).error is None
    assert "more than 3 pairs" in table.register_topic("fourth", [QueueData("a")])
    assert table.register_topic("third", [QueueData("a", 1)]) is None
    assert table.route("fourth") is None and table.route("third").queues == [QueueData("a", 1)]
    table.delete_topic("third")
    table.register_topic("fourth", [QueueData("a")])
    assert table.route("fourth") is not None
    table.lost("a:0")
    assert register(table, "b", "b:0").error is None
