"""The registry of producers: every clause of ProducerManagerTest."""

import pytest

from rocketc.broker.consumers import ClientChannel
from rocketc.broker.producers import ProducerManager


class Connection:
    is_closing = False
    is_writable = True


@pytest.fixture
def gone():
    return []


@pytest.fixture
def producers(gone):
    return ProducerManager(
        is_writable=lambda connection: connection.is_writable, on_gone=lambda *event: gone.append(event)
    )


def client(name="c", now=0):
    return ClientChannel(name, "JAVA", 479, now)


def leave_expired(producers, connection):
    assert producers.expire(120_000) == []
    assert producers.expire(120_001) == [connection]


def leave_closed(producers, connection):
    assert producers.connection_lost(connection) == ["shop"]


def leave_unregistered(producers, connection):
    assert producers.unregister(connection, "shop")


@pytest.mark.parametrize("leave", [leave_expired, leave_closed, leave_unregistered])
def test_producer_manager_test_gone_channels_leave_both_tables(producers, gone, leave):
    connection = Connection()
    assert producers.register(connection, "shop", client())
    assert not producers.register(connection, "shop", client())
    leave(producers, connection)
    assert producers.group("shop") == {} and producers.groups() == [] and producers.connection_of("c") is None
    assert producers.groups_of(connection) == []
    assert gone == [("shop", "c"), ("shop", None)]


def test_the_group_stays_until_its_last_producer_leaves(producers, gone):
    one, two = Connection(), Connection()
    producers.register(one, "shop", client("c1"))
    producers.register(two, "shop", client("c2"))
    producers.connection_lost(one)
    assert gone == [("shop", "c1")] and list(producers.group("shop")) == [two]
    assert not producers.unregister(one, "shop") and not producers.unregister(one, "other")


@pytest.mark.parametrize("first", [0, 1])
def test_producer_manager_test_of_two_channels_of_one_client_the_live_one_stays_findable(producers, first):
    connections = [Connection(), Connection()]
    for connection in connections:
        producers.register(connection, "shop", client())
    assert producers.connection_of("c") is connections[1]
    producers.connection_lost(connections[first])
    assert producers.connection_of("c") is connections[1 - first]


def test_a_connection_in_two_groups_stays_findable_until_it_left_both(producers):
    connection = Connection()
    for group in ("shop", "audit"):
        producers.register(connection, group, client())
    producers.unregister(connection, "shop")
    assert producers.connection_of("c") is connection
    producers.unregister(connection, "audit")
    assert producers.connection_of("c") is None


def test_another_client_id_on_a_connection_leaves_the_first_one(producers):
    """As seen on a 5.3.3 broker."""
    connection = Connection()
    producers.register(connection, "shop", client("old"))
    assert not producers.register(connection, "shop", client("new", now=5))
    assert producers.connection_of("new") is None and producers.connection_of("old") is connection
    assert producers.group("shop")[connection] == client("old", now=5)


def test_producer_manager_test_available_channels(producers):
    """Active and not writable: still returned. Inactive: none."""
    connection = Connection()
    assert producers.available("shop") is None
    producers.register(connection, "shop", client())
    assert producers.available("shop") is connection
    connection.is_writable = False
    assert producers.available("shop") is connection
    connection.is_closing = True
    assert producers.available("shop") is None


def test_available_channels_take_turns_and_writable_ones_come_first(producers):
    connections = [Connection() for _ in range(3)]
    for number, connection in enumerate(connections):
        producers.register(connection, "shop", client(f"c{number}"))
    assert {producers.available("shop") for _ in range(3)} == set(connections)
    connections[0].is_writable = False
    connections[1].is_closing = True
    assert {producers.available("shop") for _ in range(3)} == {connections[2]}


def test_producer_manager_test_registration_can_be_off():
    producers = ProducerManager(registers=lambda: False)
    assert not producers.register(Connection(), "shop", client())
    assert producers.groups() == []


def test_connections_of_the_server_are_asked_whether_they_close():
    producers, connection = ProducerManager(), Connection()
    producers.register(connection, "shop", client())
    assert producers.available("shop") is connection
    connection.is_closing = True
    assert producers.available("shop") is None
