"""Access control as a broker's settings want it."""

from __future__ import annotations

import os

from rocketc.acl.access import AccessControl
from rocketc.broker.config import BrokerConfig
from rocketc.broker.heartbeat import decode_heartbeat
from rocketc.tables.config_manager import Clock


def access_control(config: BrokerConfig, clock: Clock, *, in_thread: bool) -> AccessControl | None:
    """Return the access control of a broker; None if it is off.

    in_thread  see AccessControl
    Raises ValueError or OSError, for example if a file of accounts is wrong.

    >>> access_control(BrokerConfig(), lambda: 0, in_thread=False) is None
    True
    """
    if not config.acl_enable:
        return None
    home = config.rocketmq_home or os.environ.get("ROCKETMQ_HOME")
    if not home:
        raise ValueError("aclEnable=true needs a home: set rocketmqHome, or the environment variable ROCKETMQ_HOME")
    if not os.path.isdir(home):
        raise ValueError(f"aclEnable is true, and rocketmqHome is not a folder: {home}")
    return AccessControl(
        home,
        config.rocketmq_acl_plain_file,
        read_heartbeat=_subscribed,
        trace_topic=config.msg_trace_topic_name,
        clock=clock,
        in_thread=in_thread,
    )


def _subscribed(body: bytes) -> list[tuple[str, list[str]]]:
    return [(one.group, [sub.topic for sub in one.subscriptions]) for one in decode_heartbeat(body).consumers]
