"""The bodies of brokers: as 4.9.7 and 5.3.3 write them, and as hostile senders may."""

import base64
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.errors import BadRequestError
from rocketc.namesrv import bodies
from rocketc.namesrv.bodies import crc_of, decode_data_version, decode_queue_datas, decode_register_body
from rocketc.namesrv.limits import PAIRS_OF_PEER_MOST
from rocketc.namesrv.routes import DataVersion
from rocketc.remoting.route_data import QueueData

# RegisterBrokerBody.encode(true) of both releases: two topics, two filter servers.
V4_9_7 = base64.b85decode(
    "c-muNU{J4CO3p9MD@iR<vNF(7D#^@EEiOsSEl{#DG`BQ0Gch%^v@|w0sbyebU;<*v7wZ;1?VYM%Xa+)N3c;R!?mn*ZA&%}qN%8!ml+>bP1rr5"
    "RbSeI5r8Gk;LnR%hG$Sh`rC0#b$sZg"
)
V5_3_3 = base64.b85decode(
    "c-muNV6doGO3p9MD@iR<vNF(7DlSPZNexRaD$dN$0}GU7=B5G#a|@KL49zV~%}h)UEiDX9&1)GL7?^-q=Eb^2PkW~-7@C2QnL@CqpSzE1e2AmF"
    "LN!Q@etuC3&^QGX1yeLxC7{8@iRr0&C6xuKN>)m4o^Jk1AT9jSN@<2xhDth0X+~B?O0hs81^`IVE*1"
)
TOPICS = {"orders": QueueData("", 4, 5, 6, 0), "订单": QueueData("", 16, 16, 6, 0)}


def compress(*parts):
    """Make a compressed body: bytes get their length, numbers are counts."""
    raw = b"".join(struct.pack(">i", p) if isinstance(p, int) else struct.pack(">i", len(p)) + p for p in parts)
    return zlib.compress(raw)


WHOLE = (b'{"counter":7}', 1, b"orders 4 5 6 SINGLE_TAG", b"[]", 0)


def decode(body, *, compressed=False, version=479):
    return decode_register_body(body, compressed=compressed, client_version=version)


def table(topics, **wrapper):
    return json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics, **wrapper}}).encode()


# ---------------------------------------------------------------- compressed


@pytest.mark.parametrize(
    "body, client, timestamp",
    [(V4_9_7, 399, 1795645199334), (V5_3_3, 479, 1795645198157), (V5_3_3, 399, 1795645198157)],
)
def test_compressed_bodies_of_both_releases(body, client, timestamp):
    found = decode(body, compressed=True, version=client)
    assert found == (TOPICS, DataVersion(0, timestamp, 0), ("f1:1", "f2:2"))


def test_clients_of_5_send_a_further_part():
    with pytest.raises(BadRequestError, match="ends too early"):
        decode(V4_9_7, compressed=True, version=413)
    assert decode(V4_9_7, compressed=True, version=412).topics == TOPICS
    found = decode(compress(*WHOLE[:4], 2, b"{}", b"anything"), compressed=True)
    assert found == ({"orders": QueueData("", 4, 5)}, DataVersion(0, 0, 7), ())


@pytest.mark.parametrize("cut", range(1, len(V5_3_3)))
def test_each_cut_of_a_compressed_body(cut):
    with pytest.raises(BadRequestError):
        decode(V5_3_3[:cut], compressed=True)


def test_each_cut_of_the_parts():
    raw = zlib.decompress(V5_3_3)
    for cut in range(len(raw)):
        with pytest.raises(BadRequestError):
            decode(zlib.compress(raw[:cut]), compressed=True)


@pytest.mark.parametrize(
    "parts, error",
    [
        ((b"{", *WHOLE[1:]), "dataVersion is not JSON"),
        ((b"[]", *WHOLE[1:]), "dataVersion is not an object"),
        ((b'{"counter":"x"}', *WHOLE[1:]), "dataVersion: counter is 'x'"),
        ((WHOLE[0], -1), "-1 parts do not fit"),
        ((WHOLE[0], 1 << 30), "1073741824 parts do not fit"),
        ((WHOLE[0], 1, 1 << 30), "a part of 1073741824 bytes does not fit"),
        ((WHOLE[0], 1, -5), "a part of -5 bytes does not fit"),
        ((WHOLE[0], 1, b"orders 4 5 6", b"[]", 0), "name, queues, perm and filter type were expected"),
        ((WHOLE[0], 1, b"", b"[]", 0), "name, queues, perm and filter type were expected"),
        ((WHOLE[0], 1, b"orders x 5 6 SINGLE_TAG", b"[]", 0), "topic 'orders': readQueueNums is 'x'"),
        ((WHOLE[0], 1, b"orders 4 99999999999 6 SINGLE_TAG", b"[]", 0), "writeQueueNums is .99999999999"),
        ((WHOLE[0], 1, b"orders 4 5  SINGLE_TAG x", b"[]", 0), "name, queues, perm and filter type were expected"),
        ((*WHOLE[:3], b"{}", 0), "filterServerList is not a list of texts"),
        ((*WHOLE[:3], b"[1]", 0), "filterServerList is not a list of texts"),
        ((*WHOLE[:4], 1, 7), "a part of 7 bytes does not fit"),
    ],
)
def test_wrong_parts(parts, error):
    with pytest.raises(BadRequestError, match=error) as caught:
        decode(compress(*parts), compressed=True)
    assert len(str(caught.value)) < 200


TOO_MANY = PAIRS_OF_PEER_MOST + 1


def test_the_number_of_topics_is_limited():
    """A compressed body is refused by its number, before a topic is decoded."""
    too_many = f"a registration of {TOO_MANY} topics; allowed are {PAIRS_OF_PEER_MOST}"
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {f"t{n}": {} for n in range(TOO_MANY)}}})
    with pytest.raises(BadRequestError, match=too_many):
        decode(body.encode())
    with pytest.raises(BadRequestError, match=too_many):
        decode(compress(WHOLE[0], TOO_MANY, bytes(4 * TOO_MANY)), compressed=True)


@pytest.mark.parametrize("name", ["t" * 256, "订" * 85 + "t", "\ud800" * 86, "😀" * 64])
def test_long_names_are_refused(name):
    says = "the name of a topic has 25[68] bytes of UTF-8; a name server keeps at most 255"
    for table in ({name: {}}, {"orders": {"topicName": name}}):
        body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}})
        with pytest.raises(BadRequestError, match=says):
            decode(body.encode())
    if "\ud800" not in name:
        with pytest.raises(BadRequestError, match=says):
            decode(compress(WHOLE[0], 1, f"{name} 4 5 6 SINGLE_TAG".encode(), *WHOLE[3:]), compressed=True)
    with pytest.raises(BadRequestError, match="an address of filterServerList has"):
        decode(json.dumps({"filterServerList": [name]}).encode())


def test_a_large_body_is_not_searched_for_its_error(monkeypatch):
    """The search took two seconds for each MiB."""
    for size, error in ((10, "column"), (16_000, "wrong somewhere; only a text of 16384 characters is searched")):
        with pytest.raises(BadRequestError, match=f"RegisterBrokerBody is not JSON: .*{error}"):
            decode(b"[" + b"1," * size + b"x")


NUMBERS = b"{" + b",".join([b"1:1"] * 40_000) + b"}"  # 32 MiB of them, 31 KB when compressed, took 14 s


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda: decode(compress(NUMBERS, *WHOLE[1:]), compressed=True), "dataVersion has 160001 bytes"),
        (lambda: decode(compress(*WHOLE[:3], NUMBERS, 0), compressed=True), "filterServerList has 160001 bytes"),
        (
            lambda: decode(compress(*WHOLE[:4], TOO_MANY, *[b""] * TOO_MANY), compressed=True),
            "a registration of 250001",
        ),
        (lambda: decode_data_version(NUMBERS), "DataVersion has 160001 bytes; allowed are 131072"),
        (lambda: decode_queue_datas(7 * NUMBERS), "TopicRouteData has 1120007 bytes; allowed are 1048576"),
    ],
)
def test_parts_that_take_long_are_not_parsed(work, error, monkeypatch):
    monkeypatch.setattr(bodies, "parse", lambda text, **how: {} if len(text) < 100 else pytest.fail("parsed"))
    monkeypatch.setattr(bodies, "_filter_servers", lambda data: ())
    with pytest.raises(BadRequestError, match=error):
        work()


def test_a_body_of_many_objects_or_integers_is_refused(monkeypatch):
    """16 MB of them took 3 to 6 s."""
    with pytest.raises(BadRequestError, match="only a text of 16384 characters"):
        decode(b'{"x":{' + b",".join([b"1:1"] * 65_537) + b"}}")
    assert decode(b'{"x":{' + b",".join([b"1:1"] * 65_536) + b"}}").topics == {}
    monkeypatch.setattr(bodies, "JSON_OBJECTS_MOST", 5)
    assert decode(b'{"x":[[],[],{}]}').topics == {}
    with pytest.raises(BadRequestError, match="RegisterBrokerBody has more than 5 objects and lists"):
        decode(b'{"x":[[],[],{},{}]}')


def test_names_that_are_just_short_enough():
    for name in ("t" * 255, "订" * 85):
        body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {name: {}}}, "filterServerList": [name]})
        found = decode(body.encode())
        assert list(found.topics) == [name] and found.filter_servers == (name,)


def test_the_number_of_filter_servers_is_limited():
    assert len(decode(json.dumps({"filterServerList": ["f:1"] * 64}).encode()).filter_servers) == 64
    with pytest.raises(BadRequestError, match="filterServerList has 65 addresses; allowed are 64"):
        decode(json.dumps({"filterServerList": ["f:1"] * 65}).encode())


def test_a_body_that_is_not_compressed():
    with pytest.raises(BadRequestError, match="not compressed with zlib"):
        decode(b'{"filterServerList":[]}', compressed=True)


def test_the_decompressed_size_is_limited(monkeypatch):
    monkeypatch.setattr(bodies, "INFLATED_MOST", 1000)
    with pytest.raises(BadRequestError, match="more than 1000 bytes when decompressed"):
        decode(zlib.compress(b"\0" * 100_000), compressed=True)
    monkeypatch.setattr(bodies, "INFLATED_MOST", len(zlib.decompress(V5_3_3)))
    assert decode(V5_3_3, compressed=True).topics == TOPICS


@given(st.binary(max_size=200))
def test_any_bytes_as_parts(raw):
    for version in (399, 479):
        try:
            decode(zlib.compress(raw, 0), compressed=True, version=version)
        except BadRequestError as error:
            assert len(str(error)) < 300


# ---------------------------------------------------------------- JSON


def test_a_body_of_5_3_3():
    version = {"counter": 3, "stateVersion": 1, "timestamp": 2}
    config = {
        "attributes": {"message.type": "FIFO"}, "order": True, "perm": 6, "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG", "topicName": "orders", "topicSysFlag": 3, "writeQueueNums": 5,
    }  # fmt: skip
    body = {
        "filterServerList": ["f:1"],
        "topicConfigSerializeWrapper": {
            "dataVersion": version, "mappingDataVersion": version, "topicConfigTable": {"orders": config},
            "topicQueueMappingDetailMap": {}, "topicQueueMappingInfoMap": {},
        },
    }  # fmt: skip
    found = decode(json.dumps(body).encode())
    assert found == ({"orders": QueueData("", 4, 5, 6, 3)}, DataVersion(1, 2, 3), ("f:1",))


def test_an_empty_body():
    assert decode(b"") == decode(b"", compressed=True) == ({}, DataVersion(), ())


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"topicConfigSerializeWrapper":null}',
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"filterServerList":null}',
        b'{"topicConfigSerializeWrapper":{}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":null,"dataVersion":null}}',
        b' {"unknown":[1,{"a":null}]} ',
    ],
)
def test_bodies_that_lack_parts(body):
    assert decode(body) == ({}, None, ())


@pytest.mark.parametrize(
    "value, number",
    [(7, 7), ("7", 7), ("+7", 7), ("-7", -7), (6.9, 6), (True, 1), (None, 6), ((1 << 31) - 1, (1 << 31) - 1), (-1, -1)],
)
def test_numbers_as_fastjson_reads_them(value, number):
    assert decode(table({"t": {"perm": value}})).topics["t"].perm == number


@pytest.mark.parametrize("value", ["x", "0x1", " 1", "٣", 1 << 31, -(1 << 31) - 1, 1e300, "9" * 25, [], {}, [1]])
def test_wrong_numbers(value):
    for name in ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag"):
        with pytest.raises(BadRequestError, match=f"topic 't': {name} is ") as caught:
            decode(table({"t": {name: value}}))
        assert len(str(caught.value)) < 150


def test_the_name_in_the_topic_counts():
    found = decode(table({"key": {"topicName": "name"}, "other": {"topicName": None}, "third": {"topicName": ""}}))
    assert list(found.topics) == ["name", "other", "third"]
    with pytest.raises(BadRequestError, match="topic 'key': topicName is not a text"):
        decode(table({"key": {"topicName": 5}}))
    assert list(decode(b'{"topicConfigSerializeWrapper":{"topicConfigTable":{5:{}}}}').topics) == ["5"]


@pytest.mark.parametrize(
    "body, error",
    [
        (b"y", "RegisterBrokerBody is not JSON: line 1, column 1"),
        (b"x", "RegisterBrokerBody ends too early"),
        (b"xxxx", "RegisterBrokerBody is not compressed with zlib"),
        (b'{"a":1', "RegisterBrokerBody is not JSON"),
        (b"[" * 5000, "RegisterBrokerBody is not JSON"),
        (b"\xff", "RegisterBrokerBody is not JSON"),
        (b"5", "RegisterBrokerBody is not an object"),
        (b"[]", "RegisterBrokerBody is not an object"),
        (b"null", "RegisterBrokerBody is not an object"),
        (table([1]), "topicConfigTable is not an object"),
        (table("x"), "topicConfigTable is not an object"),
        (table({"t": None}), "topic 't' is not an object"),
        (table({"t" * 10_000: 5}), "topic 'ttt"),
        (table({}, dataVersion=[]), "dataVersion is not an object"),
        (table({}, dataVersion={"stateVersion": 1 << 63}), "dataVersion: stateVersion is 9223372036854775808"),
        (b'{"filterServerList":"x"}', "filterServerList is not a list of texts"),
        (b'{"filterServerList":[null]}', "filterServerList is not a list of texts"),
    ],
)
def test_wrong_bodies(body, error):
    with pytest.raises(BadRequestError, match=error) as caught:
        decode(body)
    assert len(str(caught.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON, JSON)
def test_any_json(topic, version, servers):
    body = {
        "topicConfigSerializeWrapper": {"topicConfigTable": {"t": topic}, "dataVersion": version},
        "filterServerList": servers,
    }
    for data in (body, topic, {"topicConfigSerializeWrapper": topic}):
        for call in (decode, decode_data_version, decode_queue_datas):
            try:
                call(json.dumps(data).encode())
            except BadRequestError as error:
                assert len(str(error)) < 300


# ---------------------------------------------------------------- others


def test_the_body_of_query_data_version():
    assert decode_data_version(b"") is None
    assert decode_data_version(b'{"counter":1,"timestamp":2}') == DataVersion(0, 2, 1)  # as 4.9.7
    with pytest.raises(BadRequestError, match="DataVersion is not JSON"):
        decode_data_version(b"{bad")


def test_the_body_of_register_topic():
    assert decode_queue_datas(b"") == decode_queue_datas(b"{}") == decode_queue_datas(b'{"queueDatas":null}') == []
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 1, "writeQueueNums": 3}
    assert decode_queue_datas(json.dumps({"queueDatas": [queue]}).encode()) == [QueueData("a", 2, 3, 6, 1)]
    for wrong in ({"queueDatas": {"a": 1}}, {"queueDatas": [1]}, {"queueDatas": [{"perm": 6}]}, [], 5):
        with pytest.raises(BadRequestError):
            decode_queue_datas(json.dumps(wrong).encode())


def test_the_crc_has_31_bits():
    body = next(str(n).encode() for n in range(100) if zlib.crc32(str(n).encode()) >> 31)
    assert crc_of(body) == zlib.crc32(body) - (1 << 31)
