"""The settings of a broker as tools see them: read, and changed while the broker runs.

Source: RocketMQ AdminBrokerProcessor.getBrokerConfig, updateBrokerConfig.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Protocol

from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.conf_file import ConfFile
from rocketc.broker.config import BrokerConfig, broker_properties, changed_broker_fields, keys_of_today
from rocketc.broker.master_role import HA_SETTINGS
from rocketc.broker.table_writer import Done, TableWriter, answering
from rocketc.config import StoreConfig, changed_store_fields, properties, rocketmq_properties
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.store.cleaning import CHANGEABLE as CHANGEABLE_OF_STORE

_log = logging.getLogger("rocketc.broker")

UPDATE, GET = 25, 26
BLACK_LIST = ("configBlackList", "brokerConfigPath")  # configBlackList of RocketMQ
BODY_MOST = 1 << 16  # bytes
CHANGEABLE = frozenset(
    {
        "auto_create_subscription_group",
        "broker_permission",
        "default_query_max_num",
        "enable_property_filter",
        "filter_data_clean_time_span",
        "filter_support_retry",
        "flush_consumer_offset_interval",
        *HA_SETTINGS,
        "lite_pull_message_enable",
        "max_msgs_num_batch",
        "short_polling_time_mills",
        "slave_read_enable",
        "start_accept_send_request_time_stamp",
        "store_reply_message_enable",
        "use_server_side_reset_offset",
        "broker_fast_failure_enable",
        "wait_time_mills_in_send_queue",
        "wait_time_mills_in_pull_queue",
        "wait_time_mills_in_lite_pull_queue",
        "wait_time_mills_in_heartbeat_queue",
        "wait_time_mills_in_admin_broker_queue",
        "wait_time_mills_in_transaction_queue",
    }
)  # fields of BrokerConfig that are read each time, or that `changed` applies


class ConfiguredStore(Protocol):
    """What ConfigAdmin needs of a store."""

    @property
    def path(self) -> str: ...
    @property
    def config(self) -> StoreConfig: ...
    def configure(self, **fields: Any) -> None: ...


class ConfigAdmin:
    """Answers GET_BROKER_CONFIG (26) and UPDATE_BROKER_CONFIG (25).

    config   of this broker alone: it is changed
    changed  called with the names of its fields that changed
    writer   writes `conf`
    conf     the file that the broker was started with; None: a change lasts until the broker ends
    A change is in force and in the file before it is answered.
    """

    codes = (UPDATE, GET)

    def __init__(
        self,
        store: ConfiguredStore,
        config: BrokerConfig,
        clock: Callable[[], int],
        work: StoreWork,
        changed: Callable[[Iterable[str]], object],
        writer: TableWriter,
        conf: ConfFile | None = None,
    ) -> None:
        self._store, self._config, self._clock, self._work, self._changed = store, config, clock, work, changed
        self._writer, self._conf = writer, conf
        self._version = {"counter": 0, "stateVersion": 0, "timestamp": clock()}

    def process(self, call: Call) -> Answer | None:
        return self._get() if call.command.code == GET else self._update(call)

    def _all(self) -> dict[str, Any]:
        path, config = self._store.path, self._store.config
        return {
            **rocketmq_properties(config),
            **broker_properties(self._config),
            "storePathRootDir": path,
            "storePathCommitLog": ",".join(config.commit_log_paths(path)),
        }

    def _get(self) -> Answer:
        told = {
            name: value for name, value in self._all().items() if value is not None
        }  # RocketMQ leaves them out, too
        lines = (f"{name}={shown(value)}\n" for name, value in sorted(told.items()))
        version = json.dumps(self._version, separators=(",", ":"))
        return Answer(values={"version": version}, body="".join(lines).encode("utf-8", "backslashreplace"))

    def _update(self, call: Call) -> Answer | None:
        body = call.command.body
        if len(body) > BODY_MOST:
            return Answer(Code.SYSTEM_ERROR, remark=f"the settings have {len(body)} bytes; {BODY_MOST} at most")
        try:
            asked = keys_of_today(dict(properties(body.decode())))
            of_broker, of_store = changed_broker_fields(asked), changed_store_fields(asked)
            dataclasses.replace(self._config, **of_broker)  # checks the values
            store = self._store.config.replace(**of_store)
        except ValueError as error:
            return Answer(Code.SYSTEM_ERROR, remark=f"string2Properties error: {error}")
        if not asked.keys().isdisjoint(BLACK_LIST):
            return Answer(Code.NO_PERMISSION, remark="Can not update config in black list.")
        of_broker = {name: value for name, value in of_broker.items() if value != getattr(self._config, name)}
        of_store = {
            name: getattr(store, name) for name in of_store if getattr(store, name) != getattr(self._store.config, name)
        }
        if fixed := self._fixed(asked, [*of_broker, *of_store]):
            return Answer(Code.NO_PERMISSION, remark=f"Can not update {', '.join(fixed)}: only a restart does.")
        unused = [key for key in asked if key not in self._all()]
        if unused:
            _log.warning("%s: settings that are not used here: %s", call.connection.peer, ", ".join(unused)[:200])
        return self._apply(call, asked, of_broker, of_store, unused)

    def _fixed(self, asked: Mapping[str, str], changed: list[str]) -> list[str]:
        """The keys with new values that can't be changed."""
        known, fixed = self._all(), []
        for key, text in asked.items():
            fields = [*changed_broker_fields({key: text}), *changed_store_fields({key: text})]
            may = CHANGEABLE | CHANGEABLE_OF_STORE
            is_new = key not in known or shown(known[key]) != text.strip()
            if is_new and not may.issuperset(fields) and any(field in changed for field in fields):
                fixed.append(key)
        return sorted(fixed)

    def _apply(
        self,
        call: Call,
        asked: Mapping[str, str],
        of_broker: Mapping[str, Any],
        of_store: Mapping[str, Any],
        unused: list[str],
    ) -> Answer | None:
        answer = Answer(remark=f"not used here: {', '.join(unused)}"[:1000] if unused else None)

        def done(fault: str | None) -> None:
            if fault is not None:
                call.later(Answer(Code.SYSTEM_ERROR, remark=fault))
                return
            for name, value in of_broker.items():
                setattr(self._config, name, value)
            counter = self._version["counter"] + 1
            self._version = {"counter": counter, "stateVersion": 0, "timestamp": self._clock()}
            if of_broker:
                self._changed(of_broker)
            for name, value in sorted([*of_broker.items(), *of_store.items()]):
                _log.info("%s: %s is now %s", call.connection.peer, name, value)
            self._keep(asked, {*of_broker, *of_store}, answering(call, answer))

        if of_store:
            self._work.run(lambda: self._store.configure(**of_store), done)
        else:
            done(None)
        return None

    def _keep(self, asked: Mapping[str, str], changed: Container[str], done: Done) -> None:
        """Write the settings that a request has to the file."""
        if self._conf is None:
            done(None)
            return
        changes, confirmed = {}, {}
        for key, text in asked.items():
            fields = [*changed_broker_fields({key: text}), *changed_store_fields({key: text})]
            if any(field in changed for field in fields):
                changes[key] = text.strip()
            elif fields and (CHANGEABLE | CHANGEABLE_OF_STORE).issuperset(fields):
                confirmed[key] = text.strip()
        self._conf.change(changes, confirmed)
        self._writer.save(self._conf, done)


def shown(value: object) -> str:
    """Return a value as Java's properties have it.

    >>> shown(True), shown(None), shown(0.8)
    ('true', '', '0.8')
    """
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\r", " ").replace("\n", " ")
