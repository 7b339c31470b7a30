"""Which slaves are connected to a master, and up to which physical offset each has the log. No socket, clock or log.

Source: RocketMQ DefaultHAService, GroupTransferService.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketc.status import PutStatus

MAX_GAP = 256 << 20  # bytes: haMaxGapNotInSync, haSlaveFallbehindMax before 5.0
IN_SYNC_REPLICAS = 2  # inSyncReplicas, the master included; RocketMQ 5.x has 1, and then waits for no slave


class Replica:
    """One connected slave.

    name          of its peer, for people
    host          of its peer; None: not known
    acknowledged  the physical offset of its last report; -1: it has not reported yet
    first         the physical offset of the first byte that it is sent. Before it, its log may be another one
    is_doubtful   it has not reported since another slave came from its host: it may be the same one, whose former
                  connection was lost without a sign
    """

    __slots__ = ("acknowledged", "first", "host", "is_doubtful", "name")

    def __init__(self, name: str, host: str | None = None) -> None:
        self.name, self.host = name, host
        self.acknowledged = self.first = -1
        self.is_doubtful = False

    @property
    def has_up_to(self) -> int:
        """The end of what it was sent and has acknowledged; -1: nothing yet."""
        return self.acknowledged if self.acknowledged > self.first else -1


class Replicas:
    """The connected slaves of a master.

    acks     replicas that must have a message before its send is acknowledged, the master included
             (inSyncReplicas). 0 and 1: sends wait for no slave
    max_gap  bytes; a slave that is this far behind is not in sync

    >>> replicas = Replicas()
    >>> one, two = replicas.connect("one"), replicas.connect("two")
    >>> replicas.report(one, 100), replicas.report(two, 300)
    (True, True)
    >>> len(replicas), replicas.pushed, replicas.replicated, replicas.in_sync(300)
    (2, 300, 300, 3)
    """

    def __init__(self, acks: int = IN_SYNC_REPLICAS, max_gap: int = MAX_GAP) -> None:
        self.acks, self.max_gap = acks, max_gap
        self.pushed = 0  # the greatest offset that a slave has ever reported: push2SlaveMaxOffset
        self.replicated = 0  # `acks` replicas had the log up to here, all at the same time; it never decreases
        self._connected: dict[Replica, None] = {}  # in the order in which they came
        self._nearest = -1  # the greatest last report of those that are connected

    def __len__(self) -> int:
        return len(self._connected)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._connected)

    def connect(self, name: str, host: str | None = None) -> Replica:
        """Add a slave that has connected. It counts as a replica from its first report on."""
        replica = Replica(name, host)
        self._connected[replica] = None
        return replica

    def disconnect(self, replica: Replica) -> None:
        """Remove a slave. What it has acknowledged stays replicated. A second call does nothing."""
        self._connected.pop(replica, None)
        self._nearest = max((one.acknowledged for one in self), default=-1)

    def report(self, replica: Replica, phy_offset: int) -> bool:
        """Record the offset that a slave reports; it may be lower than before. Return whether `replicated` moved.

        The caller has checked that the slave can have this offset. A report counts only if it is beyond the slave's
        `first` offset. RocketMQ counts each one, also the first one of a slave whose log is another one.
        """
        if replica.acknowledged < 0 and replica.host is not None:
            for other in self:
                other.is_doubtful = other.is_doubtful or other.host == replica.host
        before, replica.acknowledged, replica.is_doubtful = replica.acknowledged, phy_offset, False
        if phy_offset >= self._nearest:
            self._nearest = phy_offset
        elif before == self._nearest:
            self._nearest = max((one.acknowledged for one in self), default=-1)
        self.pushed = max(self.pushed, phy_offset)
        return self.look()

    def look(self) -> bool:
        """Note how far enough slaves are, by their last reports. Return whether `replicated` moved."""
        reached = self._reached()
        if reached <= self.replicated:
            return False
        self.replicated = reached
        return True

    def _reached(self) -> int:
        """Return the physical offset up to which `acks` replicas have the log now; -1: there are fewer."""
        wanted = self.acks - 1
        if wanted <= 0:
            return self.pushed
        if len(self._connected) < wanted:
            return -1
        if wanted == 1:  # the default
            return max(replica.has_up_to for replica in self._connected)
        found = sorted((one.has_up_to for one in self._connected if not one.is_doubtful), reverse=True)
        return found[wanted - 1] if len(found) >= wanted else -1

    def have(self, end: int) -> bool:
        """Whether enough of the connected slaves were sent the message that ends there, and have acknowledged it."""
        count = sum(one.first < end <= one.acknowledged and not one.is_doubtful for one in self)
        return count >= self.acks - 1

    def in_sync(self, end: int) -> int:
        """Return how many replicas are in sync with a log that ends at a physical offset, the master included.

        A slave that has not reported yet is not in sync. (RocketMQ takes its offset for -1, so at the beginning of a
        log it counts.)
        Source: RocketMQ DefaultHAService.inSyncReplicasNums.
        """
        return 1 + sum(self.is_in_sync(replica, end) for replica in self)

    def is_in_sync(self, replica: Replica, end: int) -> bool:
        """Whether one slave is in sync with a log that ends at a physical offset."""
        return replica.acknowledged >= 0 and end - replica.acknowledged < self.max_gap

    def is_slave_ok(self, end: int) -> bool:
        """Whether a slave is connected, and one was near enough to the end of the log at its last report.

        Source: RocketMQ DefaultHAService.isSlaveOK, which sends of 4.x ask.
        """
        return len(self) > 0 and end - self.pushed < self.max_gap

    def refusal(self, end: int) -> PutStatus | None:
        """Return the status of a message for which no slave can be waited for; None: a wait has a chance.

        end  of the message. It is stored, whatever the status
        All releases of RocketMQ before 5.0 answer so at once; 5.x lets each send wait for its time-out. Here a slave
        counts only while it is connected, and from its first report on.
        """
        if self.acks <= 1:
            return PutStatus.PUT_OK
        is_near = self._nearest >= 0 and end - self._nearest < self.max_gap
        return None if is_near else PutStatus.SLAVE_NOT_AVAILABLE
