"""The arguments of a put as append() wants them: topic, hosts, properties."""

from typing_extensions import Self

from rocketc.config import StoreConfig

class MessageArgsEncoder:
    def __new__(cls, config: StoreConfig) -> Self: ...
