"""Light queues: RocketMQ's broker and ours answer the same to those who read them, with and without enableLmq."""

import pytest
from interop import light_queues, scenarios

import rocketc

pytestmark = pytest.mark.long


@pytest.mark.parametrize("is_on", [True, False])
def test_answers_are_those_of_rocketmq(tmp_path, is_on):
    java = {"store.enableLmq": is_on, "store.enableMultiDispatch": is_on}
    cluster = scenarios.JavaCluster("5.3.3", tmp_path, **{name: str(on).lower() for name, on in java.items()})
    try:
        expected = light_queues.answers(cluster.broker, is_on=is_on)
    finally:
        cluster.close()
    with rocketc.Broker(enable_lmq=is_on, enable_multi_dispatch=is_on) as broker:
        assert light_queues.answers(broker.address, is_on=is_on) == expected
