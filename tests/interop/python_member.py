"""A member of a consumer group: python -m interop.python_member NAMESERVER GROUP TOPIC STRATEGY ORDERLY MILLIS [FILE].

ORDERLY is true or false; a call of the listener takes MILLIS. It prints "ready", then a line of JSON for each message
when it is consumed. It ends in order with its input. FILE is a JSON object: other addresses for those of servers.
"""

import asyncio
import dataclasses
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rocketc.client import PushConsumer


def main(name_server: str, group: str, topic: str, strategy: Any, orderly: str, millis: str, file: str = "") -> None:
    turn = threading.Lock()

    def say(line: str) -> None:
        with turn:
            print(line, flush=True)

    def listen(message: Any) -> None:
        began = time.time()
        time.sleep(int(millis) / 1000)
        told = {
            "broker": message.store_host, "queue": message.queue_id, "offset": message.queue_offset,
            "body": message.body.decode(), "began": began * 1000, "ended": time.time() * 1000,
        }  # fmt: skip
        say(json.dumps(told))

    consumer = PushConsumer(
        group, name_server, orderly=orderly == "true", allocate_message_queue_strategy=strategy,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET", client_ip="127.0.0.1", consume_thread_max=8,
    )  # fmt: skip
    if file:
        others = json.loads(Path(file).read_text())

        def connector(host: str, port: int) -> Any:
            host, port = others.get(f"{host}:{port}", (host, port))
            return lambda protocol: asyncio.get_running_loop().create_connection(protocol, host, port)

        consumer._access = dataclasses.replace(consumer._access, connector=connector)
    with consumer:
        consumer.subscribe(topic, listener=listen)
        say("ready")
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
