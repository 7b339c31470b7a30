"""The ids that a client makes: its own, and one for each message (property UNIQ_KEY).

Source: RocketMQ MessageClientIDSetter, ClientConfig.buildMQClientId.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketc.client._unique_ids import UniqueIds

__all__ = ["Clock", "UniqueIds", "client_id"]

Clock = Callable[[], float]  # Unix time in seconds: time.time


def client_id(
    ip: str, pid: int, number: int, instance_name: str = "DEFAULT", unit_name: str = "", *, is_stable: bool = False
) -> str:
    """Return the id of a client: ip@instance, and @unit if there is one.

    number         makes the id unique in this process; Java takes the nanoseconds of its clock
    instance_name  DEFAULT: it becomes the pid and the number
    is_stable      DEFAULT stays: the next process of this computer has the same id

    >>> client_id("10.0.0.1", 2620, 7), client_id("10.0.0.1", 2620, 7, "shop-1", "eu")
    ('10.0.0.1@2620#7', '10.0.0.1@shop-1@eu')
    """
    instance = f"{pid}#{number}" if instance_name == "DEFAULT" and not is_stable else instance_name
    return f"{ip}@{instance}" + (f"@{unit_name}" if unit_name else "")
