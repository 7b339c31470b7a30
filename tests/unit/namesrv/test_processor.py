"""The requests of a name server: RocketMQ's RequestProcessorTest, recorded answers, and wrong fields and bodies."""

import asyncio
import json
import zlib

import pytest
from support.native import ROOT

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.kv_config import KvConfig
from rocketc.namesrv.processor import NamesrvProcessor
from rocketc.namesrv.routes import RouteTable
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import BOOL, CODES, INT, LONG, REQUESTS
from rocketc.tables.fastjson import parse

RECORDED = [json.loads(line) for line in (ROOT / "tests/golden/admin-5.3.3.jsonl").read_text().splitlines()]
PROCESSOR = NamesrvProcessor(RouteTable(NamesrvConfig(), lambda: 0), KvConfig(""), NamesrvConfig(), lambda: 0)
OURS = [REQUESTS[code] for code in PROCESSOR.codes]
V4_9_4 = 401
CLUSTER = "DefaultCluster"
BROKER = {"brokerName": "a", "brokerAddr": "a:0", "clusterName": CLUSTER, "haServerAddr": "a:0/ha", "brokerId": 0}


def test_the_codes():
    known = [
        100,
        101,
        102,
        103,
        104,
        105,
        106,
        205,
        206,
        216,
        217,
        219,
        224,
        304,
        311,
        312,
        313,
        318,
        319,
        322,
        327,
        901,
        904,
    ]
    assert sorted(PROCESSOR.codes) == known
    assert all(CODES[request.name] == request.code for request in OURS)


@pytest.mark.parametrize("field", ["brokerName", "clusterName", "brokerAddr", "haServerAddr"])
def test_long_names_of_a_broker_are_refused(scene, field):
    async def main(net):
        client = net.connect()
        answer = await client.ask("REGISTER_BROKER", **{**BROKER, field: "x" * 256})
        assert answer.code == 1
        assert answer.remark == f"{field} has 256 bytes of UTF-8; a name server keeps at most 255"
        assert net.server.routes.clusters() == {}
        assert (await client.ask("REGISTER_BROKER", **{**BROKER, field: "x" * 255})).code == 0

    scene(main)


@pytest.mark.parametrize(("field", "most"), [("namespace", 255), ("key", 255), ("value", 65_536)])
def test_long_settings_are_refused(scene, field, most):
    async def main(net):
        client, item = net.connect(), {"namespace": "NS", "key": "k", "value": "v"}
        answer = await client.ask("PUT_KV_CONFIG", **{**item, field: "x" * (most + 1)})
        assert answer.code == 1
        assert answer.remark == f"{field} has {most + 1} bytes of UTF-8; a name server keeps at most {most}"
        assert net.server.kv.namespace("NS") is None
        assert (await client.ask("PUT_KV_CONFIG", **{**item, field: "x" * most})).code == 0

    scene(main)


def test_too_many_settings_are_refused_without_a_log(scene, monkeypatch, caplog):
    monkeypatch.setattr("rocketc.namesrv.kv_config.VALUES_MOST", 1)

    async def main(net):
        answer = await net.connect().ask("PUT_KV_CONFIG", namespace="NS", key="k", value="v")
        assert answer.code == 1
        assert answer.remark == "not written: there would be more than 1 key-value settings and namespaces"

    scene(main)
    assert not caplog.records


def test_a_long_topic_is_refused(scene):
    async def main(net):
        client = await net.register()
        body = json.dumps({"queueDatas": [{"brokerName": "a"}]}).encode()
        answer = await client.ask("REGISTER_TOPIC_IN_NAMESRV", body, topic="t" * 256)
        assert answer.code == 1 and answer.remark.startswith("topic has 256 bytes of UTF-8")
        assert (await client.ask("REGISTER_TOPIC_IN_NAMESRV", body, topic="t" * 255)).code == 0
        net.server.routes._most_queue_datas = 3
        answer = await client.ask("REGISTER_TOPIC_IN_NAMESRV", body, topic="other")
        assert (answer.code, answer.remark) == (1, "there would be more than 3 pairs of topic and broker")

    scene(main)


def test_remarks_do_not_repeat_a_long_name(scene):
    async def main(net):
        client = net.connect()
        for name, values in (
            ("GET_ROUTEINFO_BY_TOPIC", {"topic": "t" * 10_000}),
            ("GET_KV_CONFIG", {"namespace": "n" * 10_000, "key": "k" * 10_000}),
            ("GET_KVLIST_BY_NAMESPACE", {"namespace": "n" * 10_000}),
        ):
            assert 255 < len((await client.ask(name, **values)).remark) < 700

    scene(main)


def test_a_large_body_of_settings_is_refused(scene):
    async def main(net):
        client = net.connect()
        answer = await client.ask("UPDATE_NAMESRV_CONFIG", b"productEnvName=" + b"x" * 65_536)
        assert (answer.code, answer.remark) == (1, "the settings have more than 65536 bytes")
        assert net.server.config.unused["productEnvName"] == "center"

    scene(main)


def test_an_unknown_code(scene):
    async def main(net):
        answer = await net.connect().send(99999, {})
        assert (answer.code, answer.remark) == (3, " request type 99999 not supported")

    scene(main)


# ---------------------------------------------------------------- key-value settings


def test_key_value_settings(scene):
    async def main(net):
        client = net.connect()

        async def ask(name, **values):
            answer = await client.ask(name, **values)
            return answer.code, answer.remark, answer.fields, answer.body.decode()

        item = {"namespace": "NS", "key": "k"}
        missing = (22, "No config item, Namespace: NS Key: k", {}, "")
        assert await ask("GET_KV_CONFIG", **item) == missing
        assert await ask("DELETE_KV_CONFIG", **item) == (0, None, {}, "")
        assert await ask("GET_KVLIST_BY_NAMESPACE", namespace="NS") == (22, "No config item, Namespace: NS", {}, "")
        assert await ask("PUT_KV_CONFIG", **item, value='v订"\n') == (0, None, {}, "")
        assert await ask("GET_KV_CONFIG", **item) == (0, None, {"value": 'v订"\n'}, "")
        assert await ask("GET_KVLIST_BY_NAMESPACE", namespace="NS") == (0, None, {}, r'{"table":{"k":"v订\"\n"}}')
        assert await ask("DELETE_KV_CONFIG", **item) == (0, None, {}, "")
        assert await ask("GET_KV_CONFIG", **item) == missing
        assert await ask("GET_KVLIST_BY_NAMESPACE", namespace="NS") == (0, None, {}, '{"table":{}}')
        await ask("PUT_KV_CONFIG", namespace="", key="", value="")
        assert await ask("GET_KV_CONFIG", namespace="", key="") == (0, None, {"value": ""}, "")

    scene(main)


def test_settings_survive_and_errors_of_the_disk_are_answers(scene, tmp_path, monkeypatch):
    path = tmp_path / "namesrv" / "kvConfig.json"

    async def put(net):
        client = net.connect()
        assert (await client.ask("PUT_KV_CONFIG", namespace="NS", key="k", value="v")).code == 0

    async def get(net):
        client = net.connect()
        assert (await client.ask("GET_KV_CONFIG", namespace="NS", key="k")).fields == {"value": "v"}
        path.parent.rename(tmp_path / "moved")
        path.parent.write_text("a file in the way")
        for name, values in (("PUT_KV_CONFIG", {"value": "new"}), ("DELETE_KV_CONFIG", {})):
            answer = await client.ask(name, namespace="NS", key="k", **values)
            assert answer.code == 1 and answer.remark.startswith("not written: [Errno ")
        assert (await client.ask("GET_KV_CONFIG", namespace="NS", key="k")).fields == {"value": "v"}

    scene(put, kv_config_path=str(path))
    assert path.read_text() == '{"configTable":{"NS":{"k":"v"}}}'
    scene(get, kv_config_path=str(path))


# ---------------------------------------------------------------- registration


def test_the_answers_to_registrations(scene):
    async def main(net):
        client = net.connect()
        master = await net.register()
        assert (master.answer.code, master.answer.fields, master.answer.body) == (0, {}, b"")
        await client.ask("PUT_KV_CONFIG", namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
        slave = await net.register(address="a:1", id=1)
        assert slave.answer.fields == {"masterAddr": "a:0", "haServerAddr": "a:0/ha"}
        assert slave.answer.body == b'{"table":{"orders":"a:4"}}'
        net.server.config.return_order_topic_config_to_broker = False
        assert (await net.register()).answer.body == b""
        refused = await net.register("b", "b:0", topics=("one",))
        assert (refused.answer.code, refused.answer.remark) == (1, "register broker failed")

    scene(main)


def test_the_crc_of_the_body(scene):
    async def main(net):
        body = b'{"filterServerList":[]}'
        right = zlib.crc32(body) & 0x7FFFFFFF
        for crc, code in ((right, 0), (0, 0), (right + 1, 1), (-5, 1)):
            client = await net.register(body=body, bodyCrc32=crc)
            assert (client.answer.code, client.answer.remark) == (code, "crc32 not match" if code else None)
        assert (await net.register(body=b"", bodyCrc32=0)).answer.code == 0
        assert (await net.register(body=b"", bodyCrc32=1)).answer.code == 1

    scene(main)


def test_a_compressed_body(scene):
    async def main(net):
        raw = b"".join(len(part).to_bytes(4, "big") + part for part in (b"{}",))
        raw += (2).to_bytes(4, "big")
        for part in (b"orders 4 5 6 SINGLE_TAG {}", b"bills 4 5 4 SINGLE_TAG {}", b"[]"):
            raw += len(part).to_bytes(4, "big") + part
        raw += bytes(4)
        client = await net.register(body=zlib.compress(raw), compressed=True)
        assert client.answer.code == 0 and await net.codes("orders", "bills") == [0, 0]
        unmarked = await net.register("b", "b:0", body=zlib.compress(raw), compressed=False)  # as 5.3.3 sends it
        assert unmarked.answer.code == 0 and set(net.server.routes.brokers()) == {"a", "b"}
        wrong = await net.register("b", body=zlib.compress(raw[:-1]), compressed=True)
        assert (wrong.answer.code, wrong.answer.remark) == (1, "RegisterBrokerBody ends too early")

    scene(main)


def test_unregister(scene):
    async def main(net):
        broker = await net.register()
        wrong = {**BROKER, "brokerAddr": "a:9"}
        assert (await broker.ask("UNREGISTER_BROKER", **wrong)).code == 0 and await net.codes("orders") == [0]
        assert (await broker.ask("UNREGISTER_BROKER", **BROKER)).code == 0 and await net.codes("orders") == [17]

    scene(main)


def test_the_data_version(scene):
    async def main(net):
        client = net.connect()

        async def ask(body):
            answer = await client.ask("QUERY_DATA_VERSION", body, **BROKER)
            return answer.code, answer.fields, answer.body

        same = b'{"counter":1,"stateVersion":0,"timestamp":5}'
        assert await ask(same) == (0, {"changed": "true"}, b"")
        await net.register()
        assert await ask(same) == (0, {"changed": "false"}, same)
        for changed in (
            b'{"counter":2,"timestamp":5}',
            b'{"counter":1,"timestamp":6}',
            same.replace(b'n":0', b'n":1'),
            b"",
        ):
            assert await ask(changed) == (0, {"changed": "true"}, same)
        assert (await ask(b"{bad"))[0] == 1

    scene(main)


# ---------------------------------------------------------------- routes and lists

BROKER_DATA = {"brokerName": "a", "cluster": CLUSTER, "enableActingMaster": False}
QUEUE_DATA = {"brokerName": "a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 5}


@pytest.mark.parametrize(
    "version, standard, strict",
    [
        (479, None, True),
        (V4_9_4, None, True),
        (V4_9_4 - 1, None, False),
        (232, False, False),
        (232, True, True),
        (479, False, True),
    ],
)
def test_strict_and_lax_routes(scene, version, standard, strict):
    async def main(net):
        await net.register(topics={"orders": {"readQueueNums": 4, "writeQueueNums": 5}, "bills": {}})
        await net.register(address="a:10", id=10)
        values = {} if standard is None else {"acceptStandardJsonOnly": standard}
        answer = await net.connect().ask("GET_ROUTEINFO_BY_TOPIC", topic="orders", version=version, **values)
        ids = '{"0":"a:0","10":"a:10"}' if strict else '{0:"a:0",10:"a:10"}'
        rest = json.dumps(BROKER_DATA, separators=(",", ":"))[1:]
        assert answer.body.decode() == (
            f'{{"brokerDatas":[{{"brokerAddrs":{ids},{rest}],"filterServerTable":{{}},'
            f'"queueDatas":[{json.dumps(QUEUE_DATA, separators=(",", ":"))}]}}'
        )

    scene(main)


def test_strict_routes_are_ascii_as_fastjson_writes_it(scene):
    async def main(net):
        await net.register("br订é\"\\/<>&'\u2028\x01\U0001f600")
        answer = await net.connect().ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")
        assert rb'"br\u8BA2\u00E9\"\\\/<>&' in answer.body and rb"'\u2028\u0001\uD83D\uDE00\"" in answer.body.replace(
            b'"', b'\\"'
        )
        assert json.loads(answer.body)["queueDatas"][0]["brokerName"] == "br订é\"\\/<>&'\u2028\x01\U0001f600"

    scene(main)


def test_the_order_settings_of_a_topic(scene):
    async def main(net):
        await net.register()
        client = net.connect()
        await client.ask("PUT_KV_CONFIG", namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
        assert b"orderTopicConf" not in (await client.ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")).body
        await client.ask("UPDATE_NAMESRV_CONFIG", b"orderMessageEnable=true\n")
        body = (await client.ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")).body
        assert b'"filterServerTable":{},"orderTopicConf":"a:4","queueDatas":' in body
        assert b"orderTopicConf" not in (await client.ask("GET_ROUTEINFO_BY_TOPIC", topic="bills")).body

    scene(main)


def test_a_topic_without_route(scene):
    async def main(net):
        answer = await net.connect().ask("GET_ROUTEINFO_BY_TOPIC", topic="no")
        assert (answer.code, answer.body) == (Code.TOPIC_NOT_EXIST, b"")
        assert answer.remark == (
            "No topic route info in name server for the topic: no\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )

    scene(main)


def test_the_lists(scene):
    async def main(net):
        client = net.connect()

        async def body(name, **values):
            answer = await client.ask(name, **values)
            assert answer.code == 0
            return answer.body.decode()

        assert await body("GET_BROKER_CLUSTER_INFO") == '{"brokerAddrTable":{},"clusterAddrTable":{}}'
        assert await body("GET_SYSTEM_TOPIC_LIST_FROM_NS") == '{"topicList":[]}'
        flags = {"orders": 0, "unit": 1, "usub": 2, "both": 3, "ro": 0}
        await net.register(topics={name: {"topicSysFlag": flag} for name, flag in flags.items()})
        assert await body("GET_BROKER_CLUSTER_INFO") == (
            '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"a:0"},"brokerName":"a","cluster":"DefaultCluster",'
            '"enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["a"]}}'
        )
        everything = '{"topicList":["unit","orders","usub","ro","both"]}'  # the order of 5.3.3
        assert await body("GET_ALL_TOPIC_LIST_FROM_NAMESERVER") == everything
        assert await body("GET_TOPICS_BY_CLUSTER", cluster=CLUSTER) == everything
        assert await body("GET_TOPICS_BY_CLUSTER", cluster="other") == '{"topicList":[]}'
        system = json.loads(await body("GET_SYSTEM_TOPIC_LIST_FROM_NS"))
        assert list(system) == ["brokerAddr", "topicList"] and system["brokerAddr"] == "a:0"
        assert set(system["topicList"]) == {"a", CLUSTER}
        assert await body("GET_UNIT_TOPIC_LIST") == '{"topicList":["unit","both"]}'
        assert await body("GET_HAS_UNIT_SUB_TOPIC_LIST") == '{"topicList":["usub","both"]}'
        assert await body("GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST") == '{"topicList":["usub"]}'
        group = await body("GET_BROKER_MEMBER_GROUP", clusterName="asked", brokerName="a")
        assert group == '{"brokerMemberGroup":{"brokerAddrs":{0:"a:0"},"brokerName":"a","cluster":"asked"}}'
        group = await body("GET_BROKER_MEMBER_GROUP", clusterName=CLUSTER, brokerName="no")
        assert group == '{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"no","cluster":"DefaultCluster"}}'

    scene(main)


def test_lists_that_a_setting_refuses(scene):
    async def main(net):
        client = net.connect()
        for name, values in (
            ("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", {}),
            ("GET_TOPICS_BY_CLUSTER", {"cluster": CLUSTER}),
            ("GET_UNIT_TOPIC_LIST", {}),
            ("GET_HAS_UNIT_SUB_TOPIC_LIST", {}),
            ("GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST", {}),
        ):
            answer = await client.ask(name, **values)
            assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "disable")
        assert (await client.ask("GET_SYSTEM_TOPIC_LIST_FROM_NS")).code == 0

    scene(main, enable_all_topic_list=False, enable_topic_list=False)


def test_permissions_and_topics(scene):
    async def main(net):
        await net.register()
        client = net.connect()

        async def perm(topic):
            answer = await client.ask("GET_ROUTEINFO_BY_TOPIC", topic=topic)
            return json.loads(answer.body)["queueDatas"][0]["perm"] if answer.code == 0 else None

        assert (await client.ask("WIPE_WRITE_PERM_OF_BROKER", brokerName="a")).fields == {"wipeTopicCount": "2"}
        assert await perm("orders") == 4
        assert (await client.ask("ADD_WRITE_PERM_OF_BROKER", brokerName="a")).fields == {"addTopicCount": "2"}
        assert await perm("orders") == 6
        assert (await client.ask("WIPE_WRITE_PERM_OF_BROKER", brokerName="no")).fields == {"wipeTopicCount": "0"}
        single = json.dumps({"queueDatas": [{**QUEUE_DATA, "perm": 2}]}).encode()
        assert (await client.ask("REGISTER_TOPIC_IN_NAMESRV", single, topic="single")).code == 0
        assert await perm("single") == 2
        assert (await client.ask("REGISTER_TOPIC_IN_NAMESRV", topic="none")).code == 0 and await perm("none") is None
        assert (await client.ask("DELETE_TOPIC_IN_NAMESRV", topic="orders", clusterName="other")).code == 0
        assert await perm("orders") == 6
        await client.ask("DELETE_TOPIC_IN_NAMESRV", topic="orders", clusterName=CLUSTER)
        await client.ask("DELETE_TOPIC_IN_NAMESRV", topic="single")
        assert await perm("orders") is None and await perm("single") is None and await perm("bills") == 6

    scene(main)


# ---------------------------------------------------------------- settings


def test_the_settings(scene, tmp_path):
    path = tmp_path / "conf" / "namesrv.conf"

    async def main(net):
        client = net.connect()

        async def update(text):
            answer = await client.ask("UPDATE_NAMESRV_CONFIG", text)
            return answer.code, answer.remark

        assert await update(b"orderMessageEnable=true\nunknown=1\nlistenPort=abc\n") == (0, None)
        assert net.server.config.order_message_enable
        for name in (b"kvConfigPath", b"configStorePath", b"configBlackList", b"rocketmqHome"):
            refused = (Code.NO_PERMISSION, "Can not update config in black list.")
            assert await update(b"orderMessageEnable=false\n" + name + b"=/x\n") == refused
        assert net.server.config.order_message_enable
        assert await update(b"") == await update(b"no equals") == (0, None)
        code, remark = await update(b"a=\\u12")
        assert code == 1 and remark.startswith("the settings are not properties:")
        text = (await client.ask("GET_NAMESRV_CONFIG")).body.decode()
        assert "\norderMessageEnable=true\n" in text and text.splitlines() == sorted(text.splitlines())
        assert NamesrvConfig.read(path)[0].order_message_enable
        assert path.with_name("namesrv.conf.bak").exists()
        path.unlink()
        path.mkdir()
        code, remark = await update(b"orderMessageEnable=false")
        assert code == 1 and remark.startswith("not written: ")

    scene(main, config_store_path=str(path))


def test_a_setting_that_the_user_refuses_to_change(scene):
    async def main(net):
        answer = await net.connect().ask("UPDATE_NAMESRV_CONFIG", b"orderMessageEnable=true")
        assert answer.code == Code.NO_PERMISSION and not net.server.config.order_message_enable

    scene(main, config_black_list="listenPort; orderMessageEnable")


# ---------------------------------------------------------------- recorded answers, wrong requests


def shape(value):
    """A value with each number and text replaced by its type. Tables and lists are replaced by one of their entries."""
    if isinstance(value, dict):
        is_table = any(
            isinstance(name, int) or name.isdigit() or "-" in name or ":" in name or name == CLUSTER for name in value
        )
        entries = {("*" if is_table else name): shape(inner) for name, inner in value.items()}
        return dict(sorted(entries.items())) if is_table else entries
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("one", [r for r in RECORDED if r["code"] in PROCESSOR.codes], ids=lambda r: str(r["code"]))
def test_recorded_requests_of_mqadmin(scene, one):
    """An answer to a recorded request has the code, the remark, the fields and the form of 5.3.3's answer."""

    async def main(net):
        await net.register("broker-a", topics=("BenchmarkTest", "A_38ee962af21o", "%RETRY%AG_38ee962af21"))
        client = net.connect()
        if one["code"] in (CODES["GET_KV_CONFIG"], CODES["GET_ROUTEINFO_BY_TOPIC"]):
            await client.ask("PUT_KV_CONFIG", namespace="ORDER_TOPIC_CONFIG", key="A_38ee962af21o", value="broker-a:3")
        answer = await client.send(one["code"], one["request"], (one["requestBody"] or "").encode())
        assert (answer.code, answer.remark) == (one["answerCode"], one["remark"])
        assert answer.fields.keys() == one["answer"].keys()
        if one["code"] == CODES["GET_NAMESRV_CONFIG"]:
            names = [line.partition("=")[0] for line in answer.body.decode().splitlines()]
            assert names == [line.partition("=")[0] for line in one["answerBody"].splitlines()]
        elif one["answerBody"] is not None:
            ours, theirs = parse(answer.body), parse(one["answerBody"])
            assert shape(ours) == shape(theirs)
            assert list(ours) == list(theirs)
        else:
            assert answer.body == b""

    scene(main, order_message_enable=True)


FIELDS = [(request, field) for request in OURS for field in request.fields]
VALUES = {INT: "7", LONG: "7", BOOL: "true"}


def complete(request):
    """Fields that are right for a request without a body."""
    about_body = ("compressed", "bodyCrc32")
    return {f.name: VALUES.get(f.kind, "text") for f in request.fields if f.name not in about_body}


@pytest.mark.parametrize("request_, field", FIELDS, ids=lambda x: x.name)
def test_each_field_missing_empty_wrong_and_huge(scene, request_, field):
    """The answer is positive or an error of its own; nothing is logged as a fault, and the server continues."""

    async def main(net):
        await net.register()
        client = net.connect()
        whole = {
            f.name: VALUES.get(f.kind, "text") for f in request_.fields if f.name not in ("compressed", "bodyCrc32")
        }
        without = {name: text for name, text in whole.items() if name != field.name}
        answer = await client.send(request_.code, without)
        assert answer.code == (1 if field.required else answer.code)
        assert not field.required or answer.remark == f"{request_.name} lacks the field {field.name}"
        for text in ("", "x", "-1", "9" * 30, "x" * 100_000, "\0", "订", "true"):
            answer = await client.send(request_.code, {**whole, field.name: text})
            assert answer.code in (0, 1, 17, 22) and len(answer.remark or "") < 110_000, text
        assert await net.codes("orders") == [0]

    scene(main)


BODIES = [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b"[" * 10_000, b"\0" * 1000, b"a=b", b"x" * 1_000_000]


@pytest.mark.parametrize("request_", OURS, ids=lambda request: request.name)
def test_wrong_bodies(scene, request_, caplog):
    async def main(net):
        await net.register()
        client = net.connect()
        fields = {
            f.name: VALUES.get(f.kind, "text") for f in request_.fields if f.name not in ("compressed", "bodyCrc32")
        }
        for body in BODIES:
            for compressed in ("true", "false"):
                answer = await client.send(request_.code, {**fields, "compressed": compressed}, body)
                assert answer.code in (0, 1, 17, 22) and len(answer.remark or "") < 500
        assert await net.codes("orders") == [0]

    scene(main)
    assert not [r for r in caplog.records if r.exc_info]


def test_oneway_requests_are_carried_out(scene):
    async def main(net):
        from rocketc.remoting.command import Command, Flag

        broker = await net.register()
        request = REQUESTS[CODES["UNREGISTER_BROKER"]]
        frame = Command(request.code, request.encode(BROKER), flag=Flag.ONEWAY)
        broker.transport.write(frame.encode())
        await asyncio.sleep(1)
        assert await net.codes("orders") == [17]

    scene(main)
