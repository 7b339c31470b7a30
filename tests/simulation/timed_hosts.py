"""A broker with timed messages; the clock of its machine may jump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crash.disk import Recorder
from simulation.history import History
from simulation.hosts import BrokerHost, wall_clock
from simulation.network import Network
from simulation.timed_history import TOPIC, TimedHistory


class TimedHost(BrokerHost):
    """Its messages are noted as they come, with the time when they came.

    ahead  ms by which its clock is ahead of the others
    """

    def __init__(
        self,
        name: str,
        root: Path,
        network: Network,
        history: History,
        store: dict[str, Any],
        recorder: Recorder | None,
        timed: TimedHistory,
        settings: dict[str, Any],
    ) -> None:
        super().__init__(name, root, network, history, store, recorder)
        self.settings, self._timed = settings, timed
        self.ahead = 0
        self.latest = 0  # ms: the clock was never later
        self._looked: dict[int, int] = {}  # next offset, by queue

    def clock(self) -> int:
        now = wall_clock() + self.ahead
        self.latest = max(self.latest, now)
        return now

    def jump(self, milliseconds: int) -> None:
        """Set the clock forward, or back."""
        self.clock()
        self.ahead += milliseconds
        self._timed.jumped(milliseconds)

    async def start(self) -> None:
        if self.clock() < self.latest:
            self._timed.behind.append(self._network.now())
        await super().start()
        for queue, offset in self._looked.items():
            end = self.store.max_offset(TOPIC, queue)
            if end < offset:
                self._timed.forget(queue, end)
                self._looked[queue] = end
        while self.store.step():
            pass
        self._note_messages(self.down_since)  # the last life delivered them
        self._timed.started()

    def _down(self, died: bool = True) -> None:
        self.look_at_messages()
        self._timed.ends.append(self._network.now())
        if died:
            self._timed.deaths.append(self._network.now())
        self._timed.up_since = None
        super()._down(died)

    def look_at_messages(self) -> None:
        """Note what consumers can get now, and check what they must have got."""
        if self.up_since is not None:
            self._note_messages(self._network.now())
            self._timed.check_late(self.clock())

    def _note_messages(self, at: float) -> None:
        found = self.broker.topics.table.get(TOPIC)
        for queue in range(0 if found is None else found.write_queue_nums):
            offset = self._looked.get(queue, 0)
            for message in self.store.get(TOPIC, queue, offset, 1000).messages:
                self._timed.delivered(queue, message, self.latest, at)
                offset = message.queue_offset + 1
            self._looked[queue] = offset
