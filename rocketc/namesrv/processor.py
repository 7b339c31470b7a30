"""The requests of a name server, and their answers.

Source: RocketMQ DefaultRequestProcessor, ClientRequestProcessor; the remarks are those of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from rocketc.config import properties
from rocketc.namesrv.bodies import crc_of, decode_data_version, decode_queue_datas, decode_register_body
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.json_forms import (
    cluster_body,
    data_version_body,
    kv_table_body,
    member_group_body,
    route_body,
    topic_list_body,
)
from rocketc.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from rocketc.namesrv.limits import SETTINGS_MOST, VALUE_MOST, check_name, cut
from rocketc.namesrv.routes import UNIT, UNIT_SUB, Registration, RouteTable
from rocketc.remoting.codes import Code
from rocketc.remoting.disk_work import DiskWork
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer, Call

_log = logging.getLogger("rocketc.namesrv")

_V4_9_4 = 401  # clients from here on read strict JSON
_REMARK_MOST = 1000  # characters of an error that a peer gets
_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class NamesrvProcessor:
    """Processes the requests of brokers, clients and tools.

    routes, kv, config  the tables, which the requests read and change
    now                 a clock in ms that does not go back; it began at any time
    save                writes the settings, as the text of their file; raises StoreIOError
    disk                writes the files; None: process() waits for the disk
    """

    def __init__(
        self,
        routes: RouteTable,
        kv: KvConfig,
        config: NamesrvConfig,
        now: Callable[[], int],
        save: Callable[[str], object] = lambda text: None,
        disk: DiskWork | None = None,
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._now = now
        self._save = save
        self._disk = disk
        self._started = now()
        by_name: Mapping[str, Callable[[Call], Answer | None]] = {
            "PUT_KV_CONFIG": self._put_kv_config,
            "GET_KV_CONFIG": self._get_kv_config,
            "DELETE_KV_CONFIG": self._delete_kv_config,
            "GET_KVLIST_BY_NAMESPACE": self._get_kv_list,
            "REGISTER_BROKER": self._register_broker,
            "UNREGISTER_BROKER": self._unregister_broker,
            "BROKER_HEARTBEAT": self._heartbeat,
            "QUERY_DATA_VERSION": self._query_data_version,
            "GET_ROUTEINFO_BY_TOPIC": self._get_route,
            "GET_BROKER_CLUSTER_INFO": self._get_cluster_info,
            "GET_BROKER_MEMBER_GROUP": self._get_member_group,
            "WIPE_WRITE_PERM_OF_BROKER": self._wipe_write_perm,
            "ADD_WRITE_PERM_OF_BROKER": self._add_write_perm,
            "REGISTER_TOPIC_IN_NAMESRV": self._register_topic,
            "DELETE_TOPIC_IN_NAMESRV": self._delete_topic,
            "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": self._get_topics,
            "GET_TOPICS_BY_CLUSTER": self._get_topics_of_cluster,
            "GET_SYSTEM_TOPIC_LIST_FROM_NS": self._get_system_topics,
            "GET_UNIT_TOPIC_LIST": self._get_unit_topics,
            "GET_HAS_UNIT_SUB_TOPIC_LIST": self._get_unit_sub_topics,
            "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": self._get_unit_sub_topics_without_unit,
            "UPDATE_NAMESRV_CONFIG": self._update_config,
            "GET_NAMESRV_CONFIG": self._get_config,
        }
        self._handlers = {CODES[name]: handler for name, handler in by_name.items()}
        self.codes: Iterable[int] = tuple(self._handlers)

    def process(self, call: Call) -> Answer | None:
        """Return the answer to a request; None: it follows when a file is written. Raises BadRequestError."""
        return self._handlers[call.command.code](call)

    # key-value settings

    def _put_kv_config(self, call: Call) -> Answer | None:
        at = call.values
        for name in ("namespace", "key"):
            check_name(name, at[name])
        check_name("value", at["value"], VALUE_MOST)
        return self._write(call, partial(self._kv.put, at["namespace"], at["key"], at["value"]))

    def _get_kv_config(self, call: Call) -> Answer:
        namespace, key = call.values["namespace"], call.values["key"]
        value = self._kv.get(namespace, key)
        if value is None:
            return Answer(Code.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {cut(namespace)} Key: {cut(key)}")
        return Answer(values={"value": value})

    def _delete_kv_config(self, call: Call) -> Answer | None:
        return self._write(call, partial(self._kv.delete, call.values["namespace"], call.values["key"]))

    def _get_kv_list(self, call: Call) -> Answer:
        found = self._kv.namespace(call.values["namespace"])
        if found is None:
            return Answer(Code.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {cut(call.values['namespace'])}")
        return Answer(body=kv_table_body(found))

    # brokers

    def _register_broker(self, call: Call) -> Answer:
        values, body = call.values, call.command.body
        for name in ("brokerName", "clusterName", "brokerAddr", "haServerAddr"):
            check_name(name, values[name])
        if values.get("bodyCrc32", 0) not in (0, crc_of(body)):
            return Answer(Code.SYSTEM_ERROR, remark="crc32 not match")
        found = decode_register_body(
            body, compressed=values.get("compressed", False), client_version=call.command.version
        )
        broker = Registration(
            values["brokerName"],
            values["clusterName"],
            values["brokerAddr"],
            values["brokerId"],
            values["haServerAddr"],
            found.topics,
            found.version,
            found.filter_servers,
            values.get("heartbeatTimeoutMillis"),
            values.get("enableActingMaster"),
        )
        is_new = self._routes.data_version(broker.cluster, broker.address) is None
        registered = self._routes.register(broker, call.connection, self._now())
        if registered.error is not None:
            _log.warning("%s: %s with id %d: %s", broker.address, broker.name, broker.id, registered.error)
            return Answer(Code.SYSTEM_ERROR, remark=registered.error)
        if is_new:
            _log.info("%s: %s registered with id %d", broker.address, broker.name, broker.id)
        orders = self._kv.namespace(ORDER_TOPIC_CONFIG) if self._config.return_order_topic_config_to_broker else None
        return Answer(
            values={"haServerAddr": registered.ha_address, "masterAddr": registered.master_address},
            body=b"" if orders is None else kv_table_body(orders),
        )

    def _unregister_broker(self, call: Call) -> Answer:
        name, address = call.values["brokerName"], call.values["brokerAddr"]
        if self._routes.unregister(name, call.values["clusterName"], address):
            _log.info("%s: %s unregistered", address, name)
        return Answer()

    def _heartbeat(self, call: Call) -> Answer:
        self._routes.heartbeat(call.values["clusterName"], call.values["brokerAddr"], self._now())
        return Answer()

    def _query_data_version(self, call: Call) -> Answer:
        cluster, address = call.values["clusterName"], call.values["brokerAddr"]
        version = decode_data_version(call.command.body)
        stored = self._routes.data_version(cluster, address)
        is_changed = stored is None or stored != version
        if not is_changed:
            self._routes.heartbeat(cluster, address, self._now())  # the broker does not register then
        return Answer(values={"changed": is_changed}, body=b"" if stored is None else data_version_body(stored))

    # routes and topics

    def _get_route(self, call: Call) -> Answer:
        topic, config = call.values["topic"], self._config
        if config.need_wait_for_service and self._now() - self._started < config.wait_seconds_for_service * 1000:
            return Answer(Code.SYSTEM_ERROR, remark="name server not ready")
        route = self._routes.route(topic)
        if route is None:
            text = f"No topic route info in name server for the topic: {cut(topic)}\n{_FAQ}"
            return Answer(Code.TOPIC_NOT_EXIST, remark=text)
        order = self._kv.get(ORDER_TOPIC_CONFIG, topic) if config.order_message_enable else None
        strict = call.command.version >= _V4_9_4 or call.values.get("acceptStandardJsonOnly", False)
        return Answer(body=route_body(route, order, strict=strict))

    def _get_cluster_info(self, call: Call) -> Answer:
        return Answer(body=cluster_body(self._routes.brokers(), self._routes.clusters()))

    def _get_member_group(self, call: Call) -> Answer:
        name = call.values["brokerName"]
        return Answer(body=member_group_body(call.values["clusterName"], name, self._routes.members(name)))

    def _wipe_write_perm(self, call: Call) -> Answer:
        return Answer(values={"wipeTopicCount": self._routes.wipe_write_perm(call.values["brokerName"])})

    def _add_write_perm(self, call: Call) -> Answer:
        return Answer(values={"addTopicCount": self._routes.add_write_perm(call.values["brokerName"])})

    def _register_topic(self, call: Call) -> Answer:
        topic = check_name("topic", call.values["topic"])
        error = self._routes.register_topic(topic, decode_queue_datas(call.command.body))
        return Answer() if error is None else Answer(Code.SYSTEM_ERROR, remark=error)

    def _delete_topic(self, call: Call) -> Answer:
        self._routes.delete_topic(call.values["topic"], call.values.get("clusterName"))
        return Answer()

    def _get_topics(self, call: Call) -> Answer:
        allowed = self._config.enable_all_topic_list
        return Answer(body=topic_list_body(self._routes.topics())) if allowed else _disabled()

    def _get_topics_of_cluster(self, call: Call) -> Answer:
        allowed = self._config.enable_topic_list
        return Answer(body=topic_list_body(self._routes.topics(call.values["cluster"]))) if allowed else _disabled()

    def _get_system_topics(self, call: Call) -> Answer:
        return Answer(body=topic_list_body(*self._routes.system_topics()))

    def _get_unit_topics(self, call: Call) -> Answer:
        return self._topics_by_flag(UNIT, 0)

    def _get_unit_sub_topics(self, call: Call) -> Answer:
        return self._topics_by_flag(UNIT_SUB, 0)

    def _get_unit_sub_topics_without_unit(self, call: Call) -> Answer:
        return self._topics_by_flag(UNIT_SUB, UNIT)

    def _topics_by_flag(self, has: int, has_not: int) -> Answer:
        if not self._config.enable_topic_list:
            return _disabled()
        return Answer(body=topic_list_body(self._routes.topics_by_flag(has, has_not)))

    # settings

    def _update_config(self, call: Call) -> Answer | None:
        if len(call.command.body) > SETTINGS_MOST:
            return Answer(Code.SYSTEM_ERROR, remark=f"the settings have more than {SETTINGS_MOST} bytes")
        try:
            changes = dict(properties(call.command.body.decode("utf-8", "replace")))
        except ValueError as error:
            return Answer(Code.SYSTEM_ERROR, remark=f"the settings are not properties: {error}")
        if self._config.is_refused(changes):
            return Answer(Code.NO_PERMISSION, remark="Can not update config in black list.")
        if changed := self._config.update(changes):
            _log.info("%s: changed %s", call.connection.peer, ", ".join(changed))
        return self._write(call, partial(self._save, self._config.file_text()))

    def _get_config(self, call: Call) -> Answer:
        return Answer(body=self._config.text().encode())

    def _write(self, call: Call, work: Callable[[], object]) -> Answer | None:
        """Do work that writes a file, and answer when it is done. Writes keep the order of their requests."""
        if self._disk is None:
            return _outcome(work)
        self._disk.run(partial(_outcome, work), call.later)
        return None


def _disabled() -> Answer:
    return Answer(Code.SYSTEM_ERROR, remark="disable")


def _outcome(work: Callable[[], object]) -> Answer:
    try:
        work()
    except ValueError as error:  # a limit
        return Answer(Code.SYSTEM_ERROR, remark=f"not written: {error}"[:_REMARK_MOST])
    except Exception as error:  # any: the client gets an answer
        _log.error("settings are not written: %s", error)
        return Answer(Code.SYSTEM_ERROR, remark=f"not written: {error}"[:_REMARK_MOST])
    return Answer()
