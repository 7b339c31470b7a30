"""Unique ids for messages whose producers gave none. Source: RocketMQ MessageClientIDSetter."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable

from rocketc.format.ids import UniqueId


class UniqueKeys:
    """Makes unique ids.

    address  of this broker
    clock    ms since the epoch
    chance   random numbers for the part that differs between processes

    >>> keys = UniqueKeys("10.0.0.1", lambda: 1_700_000_000_000, random.Random(1))
    >>> len(keys.make()), keys.make() != keys.make()
    (32, True)
    """

    def __init__(self, address: str, clock: Callable[[], int], chance: random.Random) -> None:
        self._address = address
        self._clock = clock
        self._pid = os.getpid() & 0xFFFF
        self._loader = chance.randrange(-(1 << 31), 1 << 31)
        self._counter = 0

    def make(self) -> str:
        now = datetime.datetime.fromtimestamp(self._clock() / 1000, datetime.timezone.utc)
        began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._counter = self._counter + 1 & 0xFFFF
        since = (now - began) // datetime.timedelta(milliseconds=1)
        return UniqueId(self._address, self._pid, self._loader, since, self._counter).encode()
