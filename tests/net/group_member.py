"""A member of a group in a process of its own: it prints each change of the queues that it works on.

`python -m net.group_member NAME_SERVER GROUP TOPIC (plain|ordered)` runs until its stdin ends. A line is
[seconds of the monotonic clock, [queue id, ...]].
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from rocketc.client.access import Access
from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.settings import ConsumerSettings
from rocketc.client.subscriptions import subscribe

LOOK_SECONDS = 0.005


async def main(name_server: str, group: str, topic: str, kind: str) -> None:
    is_ordered = kind == "ordered"
    core = PushCore(
        Access((name_server,)), group, ConsumerSettings(), OrderlyService if is_ordered else ConcurrentService
    )
    await core.subscribe(subscribe(topic), _listen)
    await core.start()
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    before = None
    while not ended.done():
        mine = sorted(one.queue.queue_id for one in core._member.owned.values() if _works(one, core, topic, is_ordered))
        if mine != before:
            print(json.dumps([time.monotonic(), mine]), flush=True)
            before = mine
        await asyncio.sleep(LOOK_SECONDS)
    await core.close()


def _works(one: Any, core: PushCore, topic: str, is_ordered: bool) -> bool:
    held = one.process_queue
    if one.queue.topic != topic or held.is_dropped:
        return False
    return not is_ordered or (held.is_locked and not held.is_lock_expired(core._member.now()))


async def _listen(message: Any) -> None:
    pass


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
