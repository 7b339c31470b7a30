"""The arguments of a put from Python as a prepared record: topic, hosts, properties in stored form."""

from typing_extensions import Self

from rocketc.config import StoreConfig

class MessageArgsEncoder:
    def __new__(cls, config: StoreConfig) -> Self: ...
