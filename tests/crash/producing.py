"""A short script of a producer of transactions, which is killed: the job `produce` of crash.zygote."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rocketc.client import TransactionProducer
from rocketc.read._message import Message

DECISIONS = ("commit", "rollback", "unknown", "commit")


class Refused(Exception):
    """Rolls a transaction back."""


def produce(name_server: str, name: str, tell: Callable[[str], None]) -> None:
    """Run a transaction of each of DECISIONS. The line `stored KEY` is its local transaction."""

    def check(message: Message) -> str:
        tell(f"asked {message.keys}")
        return "UNKNOW"

    with TransactionProducer("shop", name_server, check=check) as producer:
        for number, decision in enumerate(DECISIONS):
            key = f"{name}.{number}.{decision}"
            with contextlib.suppress(Refused), producer.transaction("orders", key.encode(), keys=key) as begun:
                if decision == "rollback":
                    raise Refused
                if decision == "unknown":
                    begun.unknown()
                else:
                    tell(f"stored {key}")
    tell("closed")
