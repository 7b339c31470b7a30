"""The bodies of a name server's answers: JSON as RocketMQ 5.3.3 writes it. Members are sorted by name, nulls left out.

fastjson's usual form is lax: the ids of brokers are names without quotes. Routes also have a strict form, in ASCII.
Source: RocketMQ TopicRouteData, ClusterInfo, TopicList, KVTable, BrokerMemberGroup, DataVersion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rocketc.namesrv.routes import DataVersion, Route
from rocketc.remoting.route_data import BrokerData, QueueData
from rocketc.tables.fastjson import to_bytes

_ESCAPES = re.compile(r"\\\\|\\u[0-9a-f]{4}|/")


def route_body(route: Route, order_conf: str | None, *, strict: bool) -> bytes:
    """Return TopicRouteData.

    order_conf  the order settings of the topic, or None
    strict      True: JSON that every parser reads; False: fastjson's lax form

    >>> broker = BrokerData("broker-a", "C", {0: "127.0.0.1:10911"}, False)
    >>> print(route_body(Route([broker], [], {}), None, strict=False).decode()[:50])
    {"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911
    """
    data: dict[str, Any] = {
        "brokerDatas": [_broker(broker, strict) for broker in route.brokers],
        "filterServerTable": {address: list(found) for address, found in route.filter_servers.items()},
    }
    if order_conf is not None:
        data["orderTopicConf"] = order_conf
    data["queueDatas"] = [_queue(queue) for queue in route.queues]
    return _strict(data) if strict else to_bytes(data, compact=True)


def cluster_body(brokers: Mapping[str, BrokerData], clusters: Mapping[str, Sequence[str]]) -> bytes:
    """Return ClusterInfo: all brokers by name, and the broker names of each cluster.

    >>> cluster_body({}, {"C": ["broker-a"]})
    b'{"brokerAddrTable":{},"clusterAddrTable":{"C":["broker-a"]}}'
    """
    return to_bytes(
        {
            "brokerAddrTable": {name: _broker(broker, False) for name, broker in brokers.items()},
            "clusterAddrTable": {name: list(found) for name, found in clusters.items()},
        },
        compact=True,
    )


def topic_list_body(topics: Sequence[str], broker_address: str | None = None) -> bytes:
    """Return TopicList.

    >>> topic_list_body(["orders"])
    b'{"topicList":["orders"]}'
    """
    first = {} if broker_address is None else {"brokerAddr": broker_address}
    return to_bytes({**first, "topicList": list(topics)}, compact=True)


def kv_table_body(table: Mapping[str, str]) -> bytes:
    """Return KVTable.

    >>> kv_table_body({"orders": "broker-a:4"})
    b'{"table":{"orders":"broker-a:4"}}'
    """
    return to_bytes({"table": dict(table)}, compact=True)


def data_version_body(version: DataVersion) -> bytes:
    """Return DataVersion.

    >>> data_version_body(DataVersion(0, 1700000000000, 3))
    b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    """
    names = {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}
    return to_bytes(names, compact=True)


def member_group_body(cluster: str, name: str, members: Mapping[int, str]) -> bytes:
    """Return GetBrokerMemberGroupResponseBody: the addresses of one broker name by id.

    >>> member_group_body("C", "broker-a", {0: "127.0.0.1:10911"})
    b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}}'
    """
    group = {"brokerAddrs": dict(members), "brokerName": name, "cluster": cluster}
    return to_bytes({"brokerMemberGroup": group}, compact=True)


def _broker(broker: BrokerData, strict: bool) -> dict[str, Any]:
    addresses: dict[Any, str] = {str(id) if strict else id: address for id, address in broker.addresses.items()}
    return {
        "brokerAddrs": addresses,
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.acting_master,
    }


def _queue(queue: QueueData) -> dict[str, Any]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


def _strict(data: Any) -> bytes:
    r"""As fastjson with BrowserCompatible: ASCII, hexadecimal digits in upper case, and \/ for a slash (observed)."""
    text = json.dumps(data, separators=(",", ":"))
    return _ESCAPES.sub(lambda found: _browser_form(found[0]), text).encode()


def _browser_form(escape: str) -> str:
    if escape == "/":
        return "\\/"
    return escape if escape == "\\\\" else "\\u" + escape[2:].upper()
