"""What routes are made of, for name servers and for those that ask them. Source: RocketMQ QueueData, BrokerData,
MessageQueue.
"""

from __future__ import annotations

from typing import NamedTuple

MASTER = 0  # the id of a master


class QueueData(NamedTuple):
    """What one broker has of a topic.

    perm  bits: 4 read, 2 write, 1 inherit
    """

    broker_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(NamedTuple):
    """The brokers with one name: a master, which has the id 0, and its slaves.

    addresses      host:port by broker id, sorted by it
    acting_master  whether a slave may stand in for a lost master

    >>> BrokerData("broker-a", "C", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}).master
    '10.0.0.1:10911'
    """

    name: str
    cluster: str
    addresses: dict[int, str]
    acting_master: bool = False

    @property
    def master(self) -> str | None:
        """The address of the master; None while there is none."""
        return self.addresses.get(MASTER)


class MessageQueue(NamedTuple):
    """One queue of a topic: brokers count their own queues from 0.

    >>> print(MessageQueue("orders", "broker-a", 0))
    orders queue 0 on broker-a
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} on {self.broker_name}"
