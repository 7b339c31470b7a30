"""Replication, cold data, and requests that are not supported."""

import json

from simulation import virtual
from simulation.asking import Asking
from simulation.tools import play, recorded, shape

from rocketc.broker.admin.states import REASONS
from rocketc.remoting.codes import Code


def test_answers_have_the_shape_of_the_recorded_ones(memory_path):
    async def main(stage, client):
        await client.send(queueId=0)
        found = json.loads((await client.call(907)).body)
        assert shape(found) == shape(json.loads(recorded(907)["answerBody"]))
        assert found["masterCommitLogMaxOffset"] == stage.store.max_phy_offset
        found = json.loads((await client.call(2003)).body)
        assert shape(found) == shape(json.loads(recorded(2003)["answerBody"]))

    play(memory_path, main)


def test_a_slave_gets_the_table_of_request_modes(memory_path):
    """A slave of RocketMQ 5.3.3 asks for it. This is what a master of 5.3.3 answers without any mode set."""

    async def main(stage, client):
        answer = await client.call(402)
        assert (answer.code, answer.body) == (Code.SUCCESS, b'{"messageRequestModeMap":{}}')

    play(memory_path, main)


def test_requests_that_are_not_supported_get_a_reason(memory_path):
    async def main(stage, client):
        asking = Asking()
        virtual.link(asking, stage.broker.server.connection(), stage.chance, stage.delay)
        for code in (401, 513, 354, 1004, 2001, 200050):
            answer = await asking.send(code, {})
            assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f"{REASONS[code]} (code {code})"

        assert (await asking.send(2004, {"READ_AHEAD_MODE": "0"})).code == Code.SUCCESS
        for fields in ({"READ_AHEAD_MODE": "1"}, {}):
            assert (await asking.send(2004, fields)).code == Code.REQUEST_CODE_NOT_SUPPORTED

    play(memory_path, main)


def test_reasons_say_what_is_not_there():
    assert all(" not " in reason for reason in REASONS.values())
