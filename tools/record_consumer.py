"""Write tests/golden/consumer-5.3.3.jsonl and offsets-5.3.3.json: what parts of RocketMQ's consumer do.

    tools/record_consumer.py

Needs Java and Maven. Each line of the first has `asked`, a command of tests/interop/java/ConsumerParts.java, and
`answer`, what the classes of RocketMQ 5.3.3 answer. The second is the file of a broadcasting consumer after 7 messages.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from interop.scenarios import ConsumerParts  # noqa: E402
from support import consumer_parts  # noqa: E402

import rocketc  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"


def main() -> None:
    asked = consumer_parts.questions()
    with tempfile.TemporaryDirectory() as folder:
        java = ConsumerParts("5.3.3", Path(folder))
        try:
            answers = java.answers(asked)
            offsets = broadcast(java)
        finally:
            java.close()
    lines = [
        json.dumps({"asked": one, "answer": sorted_names(answer)}, ensure_ascii=False, separators=(",", ":")) + "\n"
        for one, answer in zip(asked, answers, strict=True)
    ]
    (GOLDEN / "consumer-5.3.3.jsonl").write_text("".join(lines), encoding="utf-8")
    (GOLDEN / "offsets-5.3.3.json").write_bytes(offsets)


def sorted_names(answer: dict[str, Any]) -> dict[str, Any]:
    """Java's order is another one in each process. That of a heartbeat is sorted already."""
    return dict(sorted(answer.items()))


def broadcast(java: ConsumerParts) -> bytes:
    """The file of offsets that a broadcasting consumer writes."""
    with rocketc.Broker() as broker:
        broker.topics.create("orders", 3)
        for i in range(7):
            broker.store.put("orders", b"%d" % i, queue_id=i % 3)
        asked = {"do": "broadcast", "nameServer": broker.name_server, "topic": "orders", "group": "audit", "count": 7}
        [answer] = java.answers([asked])
    return (java.folder / answer["clientId"] / "audit" / "offsets.json").read_bytes()


if __name__ == "__main__":
    main()
