"""A producer of transactions is killed at each call of its connections, and the broker asks another one of its group.

A message is delivered if its local transaction is stored. One that is rolled back or not decided never is.
"""

import shutil
import time
from collections import Counter

import pytest
from crash.tracing import Zygote, every

import rocketc
from rocketc.client import TransactionProducer

pytestmark = pytest.mark.promise(1, 11)

# Not recvfrom: a job begins with one, which would leave its message to the process that forks.
CALLS = "?socket,?connect,?sendto,?sendmsg,?read,?write,?shutdown,?close,?epoll_wait,?epoll_pwait"
SETTINGS = {
    "transaction_check_interval": 200,
    "transaction_time_out": 300,
    "transaction_op_batch_interval": 50,
    "transaction_check_max": 100_000,
}


@pytest.fixture
def zygote(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is missing; tools/setup.sh strace installs it")
    made = Zygote(tmp_path, ZYGOTE_IMPORTS="crash.producing rocketc.client.transaction_producer")
    yield made
    made.close()


def delivered(broker: rocketc.Broker) -> Counter[str]:
    return Counter(
        m.body.decode() for queue in range(4) for m in broker.store.get("orders", queue, 0, 100_000, max_bytes=1 << 30)
    )


@pytest.mark.parametrize("share", [40, pytest.param(1, marks=pytest.mark.long)])
def test_a_producer_killed_at_every_call(zygote, tmp_path, share):
    told: list[str] = []
    asked: set[str] = set()

    def check(message):
        """Answer for all the processes, after their time: what they have stored says whether they committed."""
        asked.add(message.keys)
        if message.keys.endswith("unknown"):
            return "UNKNOW"
        return "COMMIT_MESSAGE" if f"stored {message.keys}" in told else "ROLLBACK_MESSAGE"

    with rocketc.Broker(**SETTINGS) as broker:
        broker.topics.create("orders")

        def run(name: str) -> bool:
            killed, lines = zygote.run("produce", tmp_path, {"name_server": broker.name_server, "name": name})
            assert killed or lines[-1] == "closed"
            told.extend(lines)
            return killed

        counts = zygote.counted(lambda: run("whole"), tmp_path / "trace", CALLS)
        deaths = 0
        writes = {"write": counts.pop("write", 0)}  # among them those of commits
        for call, number in every(writes) + every(counts)[::share]:
            with zygote.killed_at(call, number):
                deaths += run(f"{call}-{number}")
        stored = {line.split()[1] for line in told if line.startswith("stored")}
        with TransactionProducer("shop", broker.name_server, check=check, topics=["orders"]):
            until = time.monotonic() + 30
            while not stored <= delivered(broker).keys() and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(0.5)  # no other message comes
        found = delivered(broker)
    asked |= {line.split()[1] for line in told if line.startswith("asked")}
    assert stored == found.keys(), sorted(stored ^ found.keys())
    assert {key for key, times in found.items() if times > 1} <= asked  # an answer may be late, then there is another
    assert deaths > (10 if share > 1 else 60)
    assert asked & stored  # some were killed before they committed
