"""Power cuts under the timed messages of a broker: `python -m crash.power_timers FOLDER SEED`.

A timed message that was durable is delivered when it is due, not earlier, and may come a second time. The power cut may
leave any part of the timer wheel, the timer log, timercheck and timermetrics.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.power_cut import Known, Life, Put, body, main, number_of, records_of, settings_of
from unit.broker.timed import Timed

from rocketc.broker import names, timers
from rocketc.broker.timed_puts import Refused
from rocketc.derived._timer_wheel import TimerWheel

timers.TimerWheel = functools.partial(TimerWheel, slots=4096)  # type: ignore[assignment, misc]  # the files are copied
PRECISION = 100
LONGEST = 150_000  # ms of a delay
CONFIG = {"timer_precision_ms": PRECISION, "mapped_file_size_timer_log": 4096, "timer_roll_window_slot": 600}


@dataclass
class Timing(Known):
    """What is known of the messages of the timer topic.

    due    when each is due, in ms
    clock  ms
    """

    due: dict[int, int] = field(default_factory=dict)
    clock: int = 0

    def at(self, clock: int) -> None:
        self.clock = clock

    def timed(self, number: int, due: int) -> None:
        self.due[number] = due

    def found(self, puts: Iterable[Put]) -> None:
        """A message of the timer topic whose due time is not known was put before the power was cut."""
        self.put, self.must, self.acked = {}, set(), set()
        self.acknowledged(puts, durable=True, kept=True)


class Clocked(Timed):
    """The timed messages of a store whose settings and clock are those of a Life."""

    def __init__(self, root: Path, fields: dict[str, Any], clock: int) -> None:
        super().__init__(root, **CONFIG)
        self.store_settings, self.now = fields, clock
        self.loop = asyncio.new_event_loop()

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.service.close()
        self.store.close()
        self.loop.close()


class TimerLife(Life):
    KNOWN = Timing

    @staticmethod
    def settings(chance: random.Random) -> dict[str, Any]:
        fields = {**settings_of(chance), "transient_store_pool_enable": False, "mapped_file_size_commit_log": 16384}
        del fields["message_index_safe"]
        return fields

    def open(self) -> Any:
        one = Clocked(self.root, self.fields, self.clock)
        one.do(one.open())
        found = [record for record in records_of(self.root) if record["topic"] == names.TIMER_TOPIC]
        puts = {number_of(record["storedBody"]): as_timed(record) for record in found}
        self.put = puts
        missing = self.acked - puts.keys()
        assert missing == set(), ("lost by a kill", sorted(missing))
        self.acked = set(puts)
        self.note("at", self.clock)
        self.note("found", list(puts.values()))
        for record in found:
            number, due = number_of(record["storedBody"]), int(record["properties"][names.TIMER_OUT_MS])
            if number not in self.known.due:
                self.note("timed", number, due)
        return one

    def settle(self, store: Clocked) -> None:
        store.do(store.run())

    def step(self, store: Clocked, chance: random.Random) -> Any:
        what = chance.choice(["put"] * 6 + ["run"] * 3 + ["clock"] * 3 + ["persist"] * 2 + ["flush", "close"])
        if what == "put":
            self.put_timed(store, chance)
        elif what == "clock":
            self.clock = store.now = store.now + chance.choice([90, 1000, 20_000, 70_000])
            self.note("at", self.clock)
            store.do(store.run())
        elif what == "run":
            store.do(store.run())
        elif what == "persist":
            store.service.persist()
            self.flushed()
        elif what == "flush":
            store.store.flush()
            self.flushed()
        elif chance.random() < 0.5:
            self.close(store)
            self.note("state", closed=False)
            return self.open()
        return None

    def flushed(self) -> None:
        self.acked.update(self.put)
        self.note("durable", list(self.put))

    def close(self, store: Clocked) -> None:
        store.end()
        self.note("durable", list(self.put))
        self.note("state", closed=True)

    def put_timed(self, store: Clocked, chance: random.Random) -> None:
        number, self.next = self.next, self.next + 1
        text, due = body(number, chance)[:800], store.now + chance.choice([50, 1000, 30_000, LONGEST])
        properties = {"UNIQ_KEY": f"K{number}", names.TIMER_DELIVER_MS: str(due)}
        to = store.rules.change(properties, "orders", 0, store.now)
        assert not isinstance(to, Refused)
        put = Put(names.TIMER_TOPIC, 0, text)
        self.note("begun", [put])
        self.note("timed", number, int(properties[names.TIMER_OUT_MS]))
        result = store.store.put(to[0], text, queue_id=to[1], properties=properties)
        assert result.status.name == "PUT_OK", result
        self.put[number] = put
        durable = self.fields["flush"] == "sync"
        self.acked.add(number)
        self.note("acknowledged", [put], durable=durable, kept=True)

    def survives(self, root: Path, known: Timing) -> None:
        one = Clocked(root, self.fields, max(known.clock, 1_700_000_000_000))
        one.do(one.open())
        try:
            one.do(one.run())
            for _ in range(6):
                one.do(one.at(one.now + LONGEST // 4))
            assert one.service.pending == 0, one.service.pending
            found = one.got()
        finally:
            one.close()
        for message in found:
            number = number_of(bytes(message.body))
            assert number in known.put and bytes(message.body) == known.put[number].body, ("unknown", number)
            due = known.due[number]
            assert message.store_timestamp >= due, ("early", number, due, message.store_timestamp)
        missing = known.must - {number_of(bytes(message.body)) for message in found}
        assert not missing, ("never delivered", sorted(missing))


def as_timed(record: Any) -> Put:
    return Put(record["topic"], record["queueId"], record["storedBody"])


if __name__ == "__main__":
    main(TimerLife)
