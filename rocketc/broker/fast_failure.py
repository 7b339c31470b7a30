"""How long requests may wait before a broker with too much to do refuses them, and the text of a refusal.

Source: RocketMQ BrokerFastFailure, NettyRemotingAbstract.
"""

from __future__ import annotations

from rocketc.broker.config import BrokerConfig
from rocketc.remoting.requests import REQUESTS

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"  # RocketMQ's remark of rejectRequest()

_SENDS, _PULL, _LITE_PULL, _END = (10, 36, 310, 320, 324, 325), 11, 361, 37
_OF_GROUPS = (14, 15, 34, 35, 38, 41, 42)  # heartbeats, offsets and locks: without them, a group stops


def patience(config: BrokerConfig) -> dict[int, float]:
    """Return the seconds by request code; empty if requests are never refused.

    >>> found = patience(BrokerConfig())
    >>> found[310], found[11], found[17], patience(BrokerConfig(broker_fast_failure_enable=False))
    (0.2, 0.5, 0.5, {})
    """
    if not config.broker_fast_failure_enable:
        return {}
    found = dict.fromkeys(REQUESTS, config.wait_time_mills_in_admin_broker_queue / 1000)
    found |= dict.fromkeys(_SENDS, config.wait_time_mills_in_send_queue / 1000)
    found[_PULL] = config.wait_time_mills_in_pull_queue / 1000
    found[_LITE_PULL] = config.wait_time_mills_in_lite_pull_queue / 1000
    found[_END] = config.wait_time_mills_in_transaction_queue / 1000
    found |= dict.fromkeys(_OF_GROUPS, config.wait_time_mills_in_heartbeat_queue / 1000)
    return found
