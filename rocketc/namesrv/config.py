"""The settings of a name server, under RocketMQ's names.

Source: RocketMQ NamesrvConfig, NettyServerConfig; the names and defaults of 5.3.3.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rocketc.config import properties
from rocketc.config_fields import INT32_MOST, check_setting, did_you_mean
from rocketc.errors import StoreIOError
from rocketc.remoting import tls_settings as tls

Value = bool | int | str

# Settings of RocketMQ without effect here. They are kept, because tools read and write all settings.
_UNUSED: dict[str, Value] = {
    "clientRequestThreadPoolNums": 8,
    "clientRequestThreadPoolQueueCapacity": 50000,
    "clusterTest": False,
    "defaultThreadPoolNums": 16,
    "defaultThreadPoolQueueCapacity": 10000,
    "enableControllerInNamesrv": False,
    "enableShutdownGracefully": False,
    "notifyMinBrokerIdChanged": False,
    "productEnvName": "center",
    "serverAsyncSemaphoreValue": 64,
    "serverCallbackExecutorThreads": 0,
    "serverNettyWorkerGroupEnable": True,
    "serverOnewaySemaphoreValue": 256,
    "serverPooledByteBufAllocatorEnable": True,
    "serverSelectorThreads": 3,
    "serverSocketBacklog": 1024,
    "serverSocketRcvBufSize": 0,
    "serverSocketSndBufSize": 0,
    "serverWorkerThreads": 8,
    "shutdownWaitTimeSeconds": 30,
    "unRegisterBrokerQueueCapacity": 3000,
    "useEpollNativeSelector": False,
    "writeBufferHighWaterMark": 0,
    "writeBufferLowWaterMark": 0,
}
_ALWAYS_BLACK = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT = range(-(1 << 31), 1 << 31)
# Of the numbers that rocketc uses, which are from 0 to 2147483647 otherwise.
_LEAST = {"scan_not_active_broker_interval": 1, "server_channel_max_idle_time_seconds": 1}
_MOST = {"listen_port": 65535}


@dataclass
class NamesrvConfig:
    """The settings of one name server. The fields are RocketMQ's, in snake_case, with its defaults.

    bind_address   address to listen on
    listen_port    0: a free port
    kv_config_path     file of the key-value settings; "" keeps them in memory only
    config_store_path  file that UPDATE_NAMESRV_CONFIG writes; "" writes none
    config_black_list  names that UPDATE_NAMESRV_CONFIG must not change, separated by ;. The four paths never change
    order_message_enable                  routes have the order settings of their topic
    return_order_topic_config_to_broker   the answer to a registration has the order settings of all topics
    delete_topic_with_broker_registration  a topic that a broker no longer registers is deleted
    support_acting_master                 a slave takes the place of a lost master in routes, for reading
    enable_all_topic_list, enable_topic_list  False: refuse the lists of topics
    need_wait_for_service       refuse routes in the first seconds
    wait_seconds_for_service    these seconds
    scan_not_active_broker_interval  ms between two looks for brokers that are silent
    server_channel_max_idle_time_seconds  seconds after which a silent connection is closed
    rocketmq_home   only reported
    tls_server_mode, tls_config_file  see tls_settings(); requests neither read nor change them
    of_tls          all settings of TLS in the file, by RocketMQ's name
    unused          settings of RocketMQ without effect here, by RocketMQ's name
    """

    bind_address: str = "0.0.0.0"
    listen_port: int = 9876
    kv_config_path: str = ""
    config_store_path: str = ""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    delete_topic_with_broker_registration: bool = False
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    scan_not_active_broker_interval: int = 5000
    server_channel_max_idle_time_seconds: int = 120
    rocketmq_home: str = ""
    tls_server_mode: str = "permissive"
    tls_config_file: str = tls.DEFAULT_FILE
    of_tls: dict[str, str] = field(default_factory=dict, repr=False)
    unused: dict[str, Value] = field(default_factory=lambda: dict(_UNUSED))

    def __post_init__(self) -> None:
        for said, name in _FIELDS.items():
            default = NamesrvConfig.__dataclass_fields__[name].default
            check_setting(said, getattr(self, name), default, _LEAST.get(name, 0), _MOST.get(name, INT32_MOST))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> tuple[NamesrvConfig, list[str]]:
        """Return the settings of a properties file, and the names in it without effect: unknown and unused ones.

        The file is then also the config_store_path. Raises ValueError with file, name and value; StoreIOError.
        """
        path = os.fspath(path)
        try:
            with open(path, encoding="iso-8859-1", newline="") as file:
                text = file.read()
        except OSError as error:
            raise StoreIOError(error.errno, error.strerror, path) from None
        config = NamesrvConfig(config_store_path=path)
        try:
            found = dict(properties(text))
            for name, value in found.items():
                if name in _FIELDS:
                    setattr(config, _FIELDS[name], _parsed(name, getattr(config, _FIELDS[name]), value))
                elif name in _UNUSED:
                    config.unused[name] = _parsed(name, _UNUSED[name], value)
                elif name in _OF_TLS:
                    setattr(config, _OF_TLS[name], value.strip())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        used = {*_FIELDS, *_OF_TLS}
        if "tls.config.file" not in found and not tls.FILE_NAMES.isdisjoint(found):
            config.tls_config_file = path  # the settings of that file are in this one
            used |= tls.FILE_NAMES
        config.of_tls = {name: value for name, value in found.items() if name in used and name not in _FIELDS}
        known = [*_FIELDS, *_UNUSED]
        strange = [name + did_you_mean(name, known) for name in found if name not in used and name not in _UNUSED]
        return config, [*(name for name in found if name in _UNUSED), *strange]

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yield (RocketMQ's name, value) of all settings, sorted by name."""
        used = {name: getattr(self, attribute) for name, attribute in _FIELDS.items()}
        yield from sorted({**used, **self.unused}.items())

    def text(self) -> str:
        """Return all settings as properties, a line each: the body of the answer to GET_NAMESRV_CONFIG.

        >>> NamesrvConfig().text().splitlines()[0]
        'bindAddress=0.0.0.0'
        """
        return "".join(f"{name}={_shown(value)}\n" for name, value in self.items())

    def file_text(self) -> str:
        """Return all settings as a properties file that read() reads again, in ASCII."""
        pairs = [*self.items(), *sorted(self.of_tls.items())]
        return "".join(f"{name}={escaped(_shown(value))}\n" for name, value in pairs)

    def is_refused(self, changes: Mapping[str, str]) -> bool:
        """Whether one of these settings must not change at run time."""
        black = _ALWAYS_BLACK.union(name.strip() for name in self.config_black_list.split(";"))
        return not black.isdisjoint(changes)

    def update(self, changes: Mapping[str, str]) -> list[str]:
        """Change settings by RocketMQ's names. As in RocketMQ, unknown names and wrong numbers are left out.

        Returns the names that changed.
        """
        changed = []
        for name, text in changes.items():
            attribute = _FIELDS.get(name)
            old = self.unused.get(name) if attribute is None else getattr(self, attribute)
            if old is None:
                continue
            try:
                value = _parsed(name, old, text, strict=False)
            except ValueError:
                continue
            if attribute is None:
                self.unused[name] = value
            else:
                setattr(self, attribute, value)
            if value != old:
                changed.append(name)
        return changed


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


_OF_TLS = {"tls.server.mode": "tls_server_mode", "tls.config.file": "tls_config_file"}
_NOT_LISTED = {"unused", "of_tls", *_OF_TLS.values()}  # names that requests neither read nor change
_FIELDS = {_camel(f.name): f.name for f in dataclasses.fields(NamesrvConfig) if f.name not in _NOT_LISTED}


def _parsed(name: str, old: Value, text: str, strict: bool = True) -> Value:
    """Return the value of a setting with the type of its old value. Raises ValueError."""
    if isinstance(old, bool):
        if strict and text.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {text[:40]!r}; allowed are true and false")
        return text.lower() == "true"
    if isinstance(old, int):
        used = _FIELDS.get(name)
        least = _INT.start if used is None else _LEAST.get(used, 0)
        most = _MOST.get(used or "", _INT.stop - 1)
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"{name} is {text[:40]!r}; allowed are whole numbers from {least} to {most}")
        return int(text)
    return text


def _shown(value: Value) -> str:
    """Return a value as Properties.toString() and RocketMQ's tools expect it: line breaks would begin another line."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\r", " ").replace("\n", " ")


def escaped(value: str) -> str:
    r"""Return a value as a properties file has it, in ASCII.

    >>> escaped("a\\b") == "a" + 2 * "\\" + "b", escaped("a b")
    (True, 'a\\u0020b')
    """
    return "".join(_escape(char) for char in value)


def _escape(char: str) -> str:
    """One character of a value in a properties file. Those that UTF-16 holds as two units become two escapes."""
    if char == "\\":
        return "\\\\"
    if " " < char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
