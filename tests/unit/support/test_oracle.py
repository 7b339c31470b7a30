"""The oracle compared with the specification: vectors, each reason of damage, the rules of the scan."""

import ipaddress
import struct
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, strategies

# ---------------------------------------------------------------------------------------------- vectors of the spec

SCALARS = {
    "queue_id": 3,
    "flag": 7,
    "queue_offset": 5,
    "born_timestamp": 1700000000000,
    "born_host": ("127.0.0.1", 54321),
    "store_timestamp": 1700000000123,
    "store_host": ("192.168.1.10", 10911),
}
TAGS_KEYS_WAIT = {"TAGS": "TagA", "KEYS": "k1", "WAIT": "true"}
V6 = {"born_host": ("1050::5:600:300c:326b", 123), "store_host": ("::1", 124)}

VECTOR_A = """
00000085daa320a73610a686000000030000000700000000000000050000000000000000000000000000018bcfe56800
7f0000010000d4310000018bcfe5687bc0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f
70696354657374001c544147530154616741024b455953016b310257414954017472756502
"""
VECTOR_B = """
00000099daa320a73610a686000000030000000700000000000000050000000000000000000000000000018bcfe56800
7f0000010000d4310000018bcfe5687bc0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f
706963546573740030544147530154616741024b455953016b3102574149540174727565025f5f435243333223013835
333331323536303002
"""
VECTOR_C = """
00000082daa320ab3610a686000000030000000700000000000000050000000000000000000000300000018bcfe56800
105000000000000000050600300c326b0000007b0000018bcfe5687b000000000000000000000000000000010000007c
0000000000000000000000000000000568656c6c6f0009546f706963546573740000
"""
VECTOR_D = """
000000370000000000000000000000070000000268
69001f4b455953016b31206b32025741495401747275650254414753015461674102
"""
VECTORS = {
    "a": (VECTOR_A, {**SCALARS, "properties": TAGS_KEYS_WAIT}),
    "b": (VECTOR_B, {**SCALARS, "properties": TAGS_KEYS_WAIT, "property_crc": True}),
    "c": (VECTOR_C, {**SCALARS, **V6, "version": 2}),
}


def only_record(data, **options):
    items = oracle.walk(data, **options)
    assert len(items) == 1
    assert isinstance(items[0], dict), items
    return items[0]


@pytest.mark.parametrize("name", VECTORS)
def test_encodes_the_vector(name):
    expected, fields = VECTORS[name]
    assert oracle.encode("TopicTest", b"hello", **fields) == bytes.fromhex(expected)


@pytest.mark.parametrize("name", VECTORS)
def test_decodes_the_vector(name):
    data = bytes.fromhex(VECTORS[name][0])
    crc = {"__CRC32#": "8533125600"} if name == "b" else {}
    expected = {
        "topic": "TopicTest",
        "queueId": 3,
        "brokerName": None,
        "queueOffset": 5,
        "physicalOffset": 0,
        "storeTimestamp": 1700000000123,
        "bornTimestamp": 1700000000000,
        "keys": "k1",
        "tags": "TagA",
        "properties": {**TAGS_KEYS_WAIT, **crc},
        "msgId": "C0A8010A00002A9F0000000000000000",
        "flag": 7,
        "sysFlag": 0,
        "reconsumeTimes": 0,
        "bodyCRC": 907060870,
        "bornHost": "127.0.0.1:54321",
        "storeHost": "192.168.1.10:10911",
        "preparedTransactionOffset": 0,
        "storeSize": len(data),
        "file": None,
        "magic": "V1",
        "storedBody": b"hello",
        "storedBodyLen": 5,
        "propertiesLen": 48 if name == "b" else 28,
        "storedProperties": data[-48:] if name == "b" else data[-28:],
        "start": 0,
        "stop": len(data),
    }
    if name == "c":
        expected |= {
            "magic": "V2",
            "sysFlag": 0x30,
            "bornHost": "[1050::5:600:300c:326b]:123",
            "storeHost": "[::1]:124",
            "msgId": "000000000000000000000000000000010000007C0000000000000000",
            "properties": {},
            "keys": None,
            "tags": None,
            "propertiesLen": 0,
            "storedProperties": b"",
        }
    assert only_record(data, crc="full") == expected


def test_batch_entry_vector():
    properties = {"KEYS": "k1 k2", "WAIT": "true", "TAGS": "TagA"}
    wire = oracle.encode_batch([(7, b"hi", properties)])
    assert wire == bytes.fromhex(VECTOR_D)
    assert oracle.decode_batch(wire + wire) == [(7, b"hi", oracle.encode_properties(properties))] * 2


def test_queue_unit_vector():
    (unit,) = oracle.queue_units(bytes.fromhex("0000000000000000 00000085 000000000027a807"))
    assert unit == (0, len(bytes.fromhex(VECTOR_A)), oracle.tags_code("TagA"))


def test_units_are_signed_and_an_incomplete_one_is_skipped():
    minus = b"\xff" * 100
    assert oracle.queue_units(minus[:59]) == [(-1, -1, -1)] * 2
    assert oracle.batch_queue_units(minus[:93]) == [(-1,) * 8] * 2
    header, chains, entries = oracle.index_file(minus[:91], 2)
    assert (header, chains, entries) == ((-1,) * 6, [-1, -1], [(-1,) * 4] * 2)
    assert oracle.checkpoint(minus) == (-1,) * 5


def test_index_file_vector():
    slots = [0, 0, 0, 0, 2, 3, 0, 0, 0, 0]
    data = bytes.fromhex(
        "0000018bcfe5687b 0000018bcfe5781a 0000000000000000 000000000000010a 00000002 00000004"
        + "".join(f"{n:08x}" for n in slots)
        + "00" * 20
        + "0029e6a8 0000000000000000 00000000 00000000"
        + "0029e6a8 0000000000000085 00000002 00000001"
        + "0029e6a9 000000000000010a 00000003 00000000"
    )
    header, chains, entries = oracle.index_file(data, 10)
    assert len(data) == 160
    assert header == (1700000000123, 1700000000123 + 3999, 0, 266, 2, 4)
    assert chains == slots
    k1, k2 = oracle.key_hash("TopicTest", "k1"), oracle.key_hash("TopicTest", "k2")
    assert entries == [(0, 0, 0, 0), (k1, 0, 0, 0), (k1, 133, 2, 1), (k2, 266, 3, 0)]
    assert (k1 % 10, k2 % 10) == (4, 5)


def test_constants_of_the_specification():
    assert oracle.java_hash("TagA") == 2598919
    assert oracle.java_hash("TopicTest#k1") == 2746024
    assert oracle.java_hash("Aa") == oracle.java_hash("BB")
    assert oracle.java_hash("polygenelubricants") == -(1 << 31)
    assert oracle.java_hash("t#achssxlk") == -(1 << 31)
    assert oracle.key_hash("t", "achssxlk") == 0
    assert oracle.key_hash("polygene", "x") == abs(oracle.java_hash("polygene#x"))
    assert oracle.java_hash("\U0001d11e") == 31 * 0xD834 + 0xDD1E
    assert oracle.crc32(b"hello") == 907060870
    assert oracle.crc32(b"") == 0
    assert oracle.crc_property(123) == b"__CRC32#\x013210000000\x02"
    assert oracle.encode_blank(9, b"x") == bytes.fromhex("00000009 cbd43194") + b"x"


# ---------------------------------------------------------------------------------------------- small things


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}),
        (b"name\x01\x02b\x01c\x02", {"b": "c"}),
        (b"\x02a\x01b", {"a": "b"}),
        (b"\x01b\x02c\x01d\x02", {"c": "d"}),
        (b"\x01b\x01c\x02", {}),
        (b"ab\x02\x02c\x01d\x02", {"c": "d"}),
        (b"a\x011\x02b\x012\x02a\x013\x02", {"a": "3", "b": "2"}),
        ("ключ\x01鍵\x02".encode(), {"ключ": "鍵"}),
        (b"a\x01\xff\xc3\x02\xe9\x01x\x02", {"a": "��", "�": "x"}),
    ],
)
def test_property_index_scan(raw, expected):
    found = oracle.decode_properties(raw)
    assert list(found.items()) == list(expected.items())


def test_property_spelling_of_each_release():
    pairs = {"A": "1", "gone": None, "B": "2"}
    assert oracle.encode_properties(pairs) == b"A\x011\x02B\x012\x02"
    assert oracle.encode_properties(pairs, trailing_separator=False) == b"A\x011\x02B\x012"
    assert oracle.encode_properties({}) == oracle.encode_properties(None) == b""
    assert oracle.encode_properties(b"\x01as it is") == b"\x01as it is"


def test_delete_property_takes_whole_pairs_only():
    assert oracle.delete_property(b"B\x01b\x02A\x01a", "A") == b"B\x01b\x02"
    assert oracle.delete_property(b"A\x01a\x02B\x01b\x02A\x01a\x02", "A") == b"B\x01b\x02"
    assert oracle.delete_property(b"xA\x01a\x02B\x01A\x02A\x02", "A") == b"xA\x01a\x02B\x01A\x02A\x02"


def test_property_crc_replaces_an_old_one():
    new = oracle.encode("t", b"b", properties=b"__CRC32#\x011\x02a\x01b", property_crc=True)
    r = only_record(new, crc="full", need_property_crc=True)
    assert list(r["properties"]) == ["a", "__CRC32#"]
    assert r["storedProperties"].startswith(b"a\x01b\x02__CRC32#\x01")
    assert only_record(oracle.encode("t", b"b", property_crc=True), crc="full")["propertiesLen"] == 20


def test_a_user_property_that_only_ends_like_the_crc_is_kept():
    raw = b"x" + oracle.crc_property(1)
    assert only_record(oracle.encode("t", b"b", properties=raw), crc="full")["properties"] == {
        "x__CRC32#": "1000000000"
    }


@pytest.mark.parametrize(
    "text", ["::", "::1", "1::", "1050::5:600:300c:326b", "1:0:0:2::3", "1::2:0:0:3:4", "1:0:2:3:4:5:6:7", "fe80::"]
)
def test_ipv6_text(text):
    raw = oracle.ipv6_bytes(text)
    address = ipaddress.IPv6Address(text)
    assert raw == address.packed
    assert oracle.ipv6_text(raw) == str(address)


@given(st.binary(min_size=16, max_size=16) | strategies.ipv6.map(oracle.ipv6_bytes))
def test_ipv6_text_is_that_of_ipaddress(raw):
    address = ipaddress.IPv6Address(raw)
    if address.ipv4_mapped is None:  # since Python 3.13 these have a dotted part
        assert oracle.ipv6_text(raw) == str(address)
    assert oracle.ipv6_bytes(oracle.ipv6_text(raw)) == raw


def test_hosts_are_printed_as_in_java():
    assert oracle.java_host("[1050::5:600:300c:326b]:123") == "[1050:0:0:0:5:600:300c:326b]:123"
    assert oracle.java_host("10.1.2.3:4") == "10.1.2.3:4"


def test_the_version_depends_on_the_topic():
    assert only_record(oracle.encode("t" * 127, b""))["magic"] == "V1"
    assert only_record(oracle.encode("t" * 128, b""))["magic"] == "V2"
    assert only_record(oracle.encode("𝄞" * 64, b""))["magic"] == "V2", "two UTF-16 units each"
    with pytest.raises(struct.error):
        oracle.encode("é" * 64, b"")  # 64 characters, but 128 bytes


def test_missing_fields_are_zero():
    r = only_record(oracle.encode("t", b""))
    zeros = "queueId queueOffset physicalOffset storeTimestamp bornTimestamp flag sysFlag reconsumeTimes bodyCRC"
    assert {r[key] for key in [*zeros.split(), "preparedTransactionOffset", "propertiesLen"]} == {0}
    assert {r["bornHost"], r["storeHost"]} == {"127.0.0.1:0"}


def test_every_number_is_signed():
    names = ["queue_id", "flag", "queue_offset", "phy_offset", "born_timestamp", "store_timestamp", "reconsume_times"]
    numbers = {name: -2 - n for n, name in enumerate([*names, "prepared_transaction_offset", "sys_flag"])}
    numbers["sys_flag"] &= ~0x30
    hosts = {"born_host": ("10.1.2.3", -11), "store_host": ("::1", -12)}
    data = patched(oracle.encode("t", b"", **numbers, **hosts), 8, ">i", -13)
    r = only_record(data, base=numbers["phy_offset"])
    found = [r["queueId"], r["flag"], r["queueOffset"], r["physicalOffset"], r["bornTimestamp"], r["storeTimestamp"]]
    found += [r["reconsumeTimes"], r["preparedTransactionOffset"], r["sysFlag"] & ~0x30]
    assert found == list(numbers.values())
    assert (r["bornHost"], r["storeHost"], r["bodyCRC"]) == ("10.1.2.3:-11", "[::1]:-12", -13)
    assert r["msgId"] == "0" * 31 + "1" + "FFFFFFF4" + "FFFFFFFFFFFFFFFB"


def test_the_v6_bits_depend_on_the_hosts():
    assert only_record(oracle.encode("t", b"", sys_flag=0x3F))["sysFlag"] == 0xF
    assert only_record(oracle.encode("t", b"", **V6))["sysFlag"] == 0x30
    assert only_record(oracle.encode("t", b"", store_host=("::1", 1)))["sysFlag"] == 0x20


def test_lengths_that_do_not_fit_their_field():
    longest = b"p" * 32767
    assert only_record(oracle.encode("t" * 32767, b"", properties=longest))["propertiesLen"] == 32767
    for topic, properties in (("t" * 32768, b""), ("t", longest + b"p")):
        with pytest.raises(struct.error):
            oracle.encode(topic, b"", properties=properties)
    with pytest.raises(struct.error):
        oracle.encode("t", b"", properties=longest, property_crc=True)
    with pytest.raises(struct.error):
        oracle.encode_batch([(0, b"", longest + b"p")])


def test_the_smallest_record():
    assert len(SMALLEST) == 91
    assert only_record(SMALLEST)["topic"] == ""


# ---------------------------------------------------------------------------------------------- checks


def patched(record, pos, code, *numbers):
    data = bytearray(record)
    struct.pack_into(code, data, pos, *numbers)
    return bytes(data)


PLAIN = oracle.encode("topic", b"body", properties={"a": "b"})  # 91 bytes and 4 + 5 + 4
WITH_CRC = oracle.encode("topic", b"body", properties={"a": "b"}, property_crc=True)
LONG = oracle.encode("t", b"", properties={"long": "p" * 200})
LONGEST = oracle.encode("\u3042" * 10922, b"", properties=b"p" * 32767)  # V2; the topic begins with E3 81
BODY_LENGTH, BODY, TOPIC_LENGTH, PROPERTIES_LENGTH = 84, 88, 92, 98
SMALLEST = oracle.encode("", b"")

# (bytes, options of walk(), reason). The bytes hold one record and nothing more.
REASONS = {
    "seven bytes": (PLAIN[:7], {}, "truncated"),
    "size 7": (patched(PLAIN, 0, ">i", 7), {}, "bad_size"),
    "size negative": (patched(PLAIN, 0, ">i", -1), {}, "bad_size"),
    "size 7 before magic": (patched(PLAIN, 0, ">ii", 7, 1), {}, "bad_size"),
    "size 0, magic not": (patched(PLAIN, 0, ">i", 0), {}, "bad_size"),
    "magic": (patched(PLAIN, 4, ">i", 1), {}, "bad_magic"),
    "magic before size 90": (patched(PLAIN, 0, ">ii", 90, 1), {}, "bad_magic"),
    "size 90": (patched(PLAIN, 0, ">i", 90), {}, "bad_size"),
    "a blank too short": (oracle.encode_blank(20)[:19], {}, "bad_blank"),
    "a blank too long": (oracle.encode_blank(20) + b"\0", {}, "bad_blank"),
    "a blank of 7": (patched(oracle.encode_blank(8), 0, ">i", 7), {}, "bad_size"),
    "one byte is gone": (PLAIN[:-1], {}, "truncated"),
    "size past the end": (patched(PLAIN, 0, ">i", 0x7FFFFFFF), {}, "truncated"),
    "body length -1": (patched(PLAIN, BODY_LENGTH, ">i", -1), {}, "bad_body_length"),
    "body length past the end": (patched(PLAIN, BODY_LENGTH, ">i", 14), {}, "bad_body_length"),
    "body length 2**31-1": (patched(PLAIN, BODY_LENGTH, ">i", 0x7FFFFFFF), {}, "bad_body_length"),
    "hosts too long for the record": (patched(SMALLEST, 36, ">i", 0x10), {}, "bad_body_length"),
    "a V2 record of 91 bytes": (patched(SMALLEST, 4, ">i", oracle.MAGIC_V2), {}, "bad_body_length"),
    "a body to the end": (patched(PLAIN, BODY_LENGTH, ">i", 13), {}, "bad_topic_length"),
    "topic length -1": (patched(PLAIN, TOPIC_LENGTH, ">b", -1), {}, "bad_topic_length"),
    "topic length -128": (patched(LONG, BODY, ">b", -128), {}, "bad_topic_length"),
    "topic length -32768": (patched(LONGEST, BODY, ">h", -32768), {}, "bad_topic_length"),
    "topic length past the end": (patched(PLAIN, TOPIC_LENGTH, ">b", 10), {}, "bad_topic_length"),
    "a topic to the end": (patched(PLAIN, TOPIC_LENGTH, ">b", 9), {}, "bad_properties_length"),
    "properties length -1": (patched(PLAIN, PROPERTIES_LENGTH, ">h", -1), {}, "bad_properties_length"),
    "properties length far below 0": (patched(LONGEST, BODY, ">h", 0), {}, "bad_properties_length"),
    "properties length past the end": (patched(PLAIN, PROPERTIES_LENGTH, ">h", 5), {}, "bad_properties_length"),
    "lengths say less": (patched(PLAIN, PROPERTIES_LENGTH, ">h", 3), {}, "bad_length"),
    "body": (patched(PLAIN, BODY, ">b", 0), {}, "bad_body_crc"),
    "body, everything checked": (patched(PLAIN, BODY, ">b", 0), {"crc": "full"}, "bad_body_crc"),
    "no property crc": (PLAIN, {"crc": "full", "need_property_crc": True}, "missing_property_crc"),
    "flag under the property crc": (patched(WITH_CRC, 16, ">i", 1), {"crc": "full"}, "bad_property_crc"),
    "a letter among the digits": (patched(WITH_CRC, len(WITH_CRC) - 2, ">b", 65), {"crc": "full"}, "bad_property_crc"),
    "end of the property crc": (patched(WITH_CRC, len(WITH_CRC) - 1, ">b", 3), {"crc": "full"}, "bad_property_crc"),
    "physical offset": (PLAIN, {"base": 1}, "bad_physical_offset"),
    "physical offset in the record": (patched(PLAIN, 28, ">q", 1), {}, "bad_physical_offset"),
    "body crc before physical offset": (patched(PLAIN, BODY, ">b", 0), {"base": 1}, "bad_body_crc"),
}


@pytest.mark.parametrize("case", REASONS)
def test_reason(case):
    data, options, reason = REASONS[case]
    assert [d.reason for d in oracle.damage(oracle.walk(data, **options))] == [reason]
    assert oracle.records(oracle.walk(data, **options)) == []


def test_every_reason_is_tested():
    assert {reason for _, _, reason in REASONS.values()} == {
        "bad_size",
        "truncated",
        "bad_blank",
        "bad_magic",
        "bad_body_length",
        "bad_topic_length",
        "bad_properties_length",
        "bad_length",
        "bad_body_crc",
        "missing_property_crc",
        "bad_property_crc",
        "bad_physical_offset",
    }


@pytest.mark.parametrize("crc", ["none", "body", "full"])
def test_only_requested_checks_are_made(crc):
    body, flag = patched(PLAIN, BODY, ">b", 0), patched(WITH_CRC, 16, ">i", 1)
    assert len(oracle.records(oracle.walk(body, crc=crc))) == (crc == "none")
    assert len(oracle.records(oracle.walk(flag, crc=crc))) == (crc != "full")


@pytest.mark.parametrize("cut", range(1, len(PLAIN)))
def test_every_torn_length_is_truncated(cut):
    all_zero = cut < 4  # the first bytes of TOTALSIZE: like unused space
    assert [d.reason for d in oracle.damage(oracle.walk(PLAIN[:cut]))] == ["truncated"] * (not all_zero)


# ---------------------------------------------------------------------------------------------- scan


def log_of(count, *, base=0):
    """Return `count` consecutive records and the start of each."""
    data, starts = b"", []
    for n in range(count):
        starts.append(base + len(data))
        data += oracle.encode("topic", b"body %d" % n, phy_offset=base + len(data))
    return data, starts


def outline(items):
    """Return the items in short form: the start of each record and blank, (start, stop, reason) of each damage."""
    return [i["start"] if isinstance(i, dict) else i.start if isinstance(i, oracle.Blank) else i[:3] for i in items]


SIZE = len(log_of(1)[0])


def test_damage_with_valid_lengths_loses_one_record():
    data, starts = log_of(3)
    bad = patched(data, starts[1] + BODY, ">b", 0)
    lost = (SIZE, 2 * SIZE, "bad_body_crc")
    assert outline(oracle.walk(bad)) == [0, lost, 2 * SIZE]
    assert outline(oracle.walk(bad[: 2 * SIZE])) == [0, lost], "the end of the file follows"
    assert outline(oracle.walk(bad[: 2 * SIZE] + bytes(50))) == [0, lost], "zero space follows"
    assert outline(oracle.walk(bad[: 2 * SIZE] + bytes(3))) == [0, lost], "too few zeros for a record follow"
    assert outline(oracle.walk(bad[: 2 * SIZE] + oracle.encode_blank(30))) == [0, lost, 2 * SIZE], "a blank follows"


def test_two_adjacent_bad_records_are_one_damage():
    data, starts = log_of(4)
    bad = patched(patched(data, starts[1] + BODY, ">b", 0), starts[2] + BODY, ">b", 0)
    assert outline(oracle.walk(bad)) == [0, (starts[1], starts[3], "bad_body_crc"), starts[3]]


def test_after_bad_lengths_the_next_record_is_searched():
    data, starts = log_of(3)
    bad = patched(data, starts[1] + BODY_LENGTH, ">i", -5)
    assert outline(oracle.walk(bad)) == [0, (starts[1], starts[2], "bad_body_length"), starts[2]]
    bad = patched(data, starts[1], ">i", SIZE + 1)
    assert outline(oracle.walk(bad)) == [0, (starts[1], starts[2], "bad_length"), starts[2]]


def test_the_search_finds_a_blank_that_fills_the_file():
    data, starts = log_of(2)
    bad = patched(data, starts[1] + 4, ">i", 1) + oracle.encode_blank(40, b"stale")
    assert outline(oracle.walk(bad)) == [0, (starts[1], 2 * SIZE, "bad_magic"), 2 * SIZE]
    assert outline(oracle.walk(bad + b"x", last=False)) == [0, (starts[1], len(bad) + 1, "bad_magic")]


def test_records_after_damage_get_the_requested_checks():
    data, starts = log_of(3)
    bad = patched(patched(data, starts[1] + 28, ">q", 1), starts[2] + BODY, ">b", 0)
    assert outline(oracle.walk(bad, crc="none")) == [0, (starts[1], starts[2], "bad_physical_offset"), starts[2]]
    assert outline(oracle.walk(bad, crc="body")) == [0, (starts[1], len(bad) - 2, "bad_physical_offset")]
    bad = patched(data, starts[1] + 28, ">q", 1)[:-1] + b"x"  # the third record has a wrong length
    assert outline(oracle.walk(bad, crc="none")) == [0, (starts[1], len(bad), "bad_physical_offset")]


def test_the_crc_of_an_empty_body_is_not_checked():
    assert only_record(patched(SMALLEST, 8, ">i", 1))["bodyCRC"] == 1


def test_the_search_always_checks_bodies():
    data, starts = log_of(4)
    bad = patched(patched(data, starts[1] + 4, ">i", 1), starts[2] + BODY, ">b", 0)
    assert outline(oracle.walk(bad, crc="none")) == [0, (starts[1], starts[3], "bad_magic"), starts[3]]


def test_the_search_checks_property_crcs_with_full_checks():
    data, _ = log_of(1)
    record = oracle.encode("t", b"", flag=1, phy_offset=SIZE, property_crc=True)
    bad = patched(data, 4, ">i", 1) + patched(record, 16, ">i", 2)
    assert outline(oracle.walk(bad, crc="none")) == [(0, SIZE, "bad_magic"), SIZE]
    assert outline(oracle.walk(bad, crc="body")) == [(0, SIZE, "bad_magic"), SIZE]
    assert outline(oracle.walk(bad, crc="full")) == [(0, len(bad), "bad_magic")]


def test_the_search_begins_one_byte_later():
    data, starts = log_of(2, base=1)
    assert outline(oracle.walk(b"x" + data)) == [(0, 1, "bad_magic"), *starts]


def test_a_record_in_a_body_is_not_found():
    inner = oracle.encode("inner", b"inner")
    data = oracle.encode("outer", inner, properties={"a": "b"})
    bad = patched(data, 4, ">i", 1)
    assert outline(oracle.walk(bad)) == [(0, len(bad), "bad_magic")]
    at = data.index(inner)
    exact = patched(bad, at + 28, ">q", at)
    assert outline(oracle.walk(exact)) == [(0, at, "bad_magic"), at, (at + len(inner), len(exact), "bad_magic")]


def test_damage_at_the_end_of_the_log_ends_with_the_last_byte():
    data, starts = log_of(2)
    bad = patched(data, starts[1] + 4, ">i", 1)
    stop = len(bad.rstrip(b"\0"))
    assert stop < len(bad), "the record ends in zeros: it has an empty property string"
    assert outline(oracle.walk(bad + bytes(100))) == [0, (starts[1], stop, "bad_magic")]
    assert outline(oracle.walk(bad + bytes(100), last=False)) == [0, (starts[1], len(bad) + 100, "bad_magic")]
    assert outline(oracle.walk(b"x" + bytes(50), last=False)) == [(0, 51, "bad_magic")]


def test_unused_space():
    data, starts = log_of(3)
    hole = bytes(SIZE)
    holed = data[:SIZE] + hole + data[2 * SIZE :]
    lost = (SIZE, 2 * SIZE, "zeroed")
    for last in (True, False):
        assert outline(oracle.walk(holed, last=last)) == [0, lost, starts[2]]
    tail = data[:SIZE] + hole
    assert outline(oracle.walk(tail)) == [0]
    assert outline(oracle.walk(tail, last=False)) == [0, lost]
    assert outline(oracle.walk(tail + b"x" + hole)) == [0, (SIZE, 2 * SIZE + 1, "zeroed")]
    assert outline(oracle.walk(tail + b"x" + hole, last=False)) == [0, (SIZE, 3 * SIZE + 1, "zeroed")]
    assert outline(oracle.walk(data[:SIZE] + bytes(3), last=False)) == [0, (SIZE, SIZE + 3, "zeroed")]
    assert outline(oracle.walk(data[:SIZE], last=False)) == [0]


def test_an_unused_file_after_the_log_is_not_damage():
    data, _ = log_of(1)
    first = (0, data.ljust(500, b"\0"))
    unused = [(500, bytes(500)), (1000, b"")]
    assert outline(oracle.walk_log([first, *unused])) == [0]
    assert oracle.walk_log(unused) == oracle.walk_log([]) == []
    second = (1000, log_of(1, base=1000)[0])
    assert outline(oracle.walk_log([first, (500, bytes(500)), second])) == [
        0,
        (SIZE, 500, "zeroed"),
        (500, 1000, "zeroed"),
        1000,
    ]


def test_base_can_be_detected():
    data, starts = log_of(2, base=12345)
    assert outline(oracle.walk(data, None)) == starts
    assert outline(oracle.walk(b"xx" + data, None)) == [(12343, 12345, "bad_magic"), *starts]
    assert oracle.learn_base(data) == 12345
    assert oracle.learn_base(data[10:]) == 12355
    assert oracle.learn_base(b"") == 0
    rotten = patched(oracle.encode("t", b"body", phy_offset=1000), BODY, ">b", 0)
    assert oracle.learn_base(rotten + data) == 12345 - len(rotten)
    assert oracle.learn_base(b"x" + oracle.encode("t", b"") + data) == 12345 - 1 - len(oracle.encode("t", b""))


@pytest.mark.parametrize("left", range(7, 10))
def test_a_file_keeps_eight_bytes_for_its_blank_record(left):
    record = oracle.encode("t", b"")
    first, second = oracle.lay_out([{"topic": "t", "body": b""}] * 2, len(record) + 8)
    assert first == (0, record + oracle.encode_blank(8))
    assert outline(oracle.walk_log([first, second])) == [0, len(record), len(record) + 8]
    files = oracle.lay_out([{"topic": "t", "body": b""}] * 2, 2 * len(record) + left, base=1000)
    assert [base for base, _ in files] == ([1000] if left >= 8 else [1000, 1000 + 2 * len(record) + left])
    assert oracle.blanks(oracle.walk_log(files)) == ([] if left >= 8 else [(1000 + len(record), files[1][0], None)])
    with pytest.raises(ValueError, match="larger than a file"):
        oracle.lay_out([{"topic": "t", "body": b""}], len(record) + 7)


def test_log_end():
    data, _ = log_of(2)
    assert oracle.log_end([]) == 0
    assert oracle.log_end([], 7) == 7
    assert oracle.log_end(oracle.walk(data + bytes(50))) == len(data)
    assert oracle.log_end(oracle.walk(data + oracle.encode_blank(50))) == len(data) + 50
    assert oracle.log_end(oracle.walk(data + b"x")) == len(data) + 1


def test_read_log(tmp_path):
    data, starts = log_of(2)
    (tmp_path / "00000000000000000000").write_bytes(data)
    (tmp_path / "notes.txt").write_bytes(b"no log")
    (entry,) = oracle.read_log(tmp_path)
    assert entry == (0, data, str(tmp_path / "00000000000000000000"))
    assert [r["file"] for r in oracle.walk_log([entry])] == [entry[2]] * len(starts)


# ---------------------------------------------------------------------------------------------- content


def content(body, sys_flag, **options):
    return oracle.read([only_record(oracle.encode("t", body, sys_flag=sys_flag))], **options)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_compressed_body(kind):
    if kind == 1:
        pytest.importorskip("lz4.frame")
    if kind == 2 and sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    plain = b"plain body " * 100
    stored = strategies.compress(plain, kind)
    flag = oracle.COMPRESSED | kind << 8
    (message,) = content(stored, flag)
    assert message["body"] == plain
    assert content(stored, flag, limit=len(plain))[0]["body"] == plain
    assert content(stored, flag, limit=len(plain) - 1)[0].reason == "too_large"
    assert content(stored, flag, decompress=False)[0]["body"] == stored
    assert content(stored[:-1], flag)[0].reason == "bad_compression"
    assert content(b"not " + stored, flag)[0].reason == "bad_compression"
    assert content(stored, kind << 8)[0]["body"] == stored
    assert content(b"", flag)[0]["body"] == b""


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_compression(kind):
    assert content(zlib.compress(b"x"), oracle.COMPRESSED | kind << 8)[0].reason == "bad_compression"


def test_inner_batch():
    entries = [(1, b"one", {"TAGS": "A"}), (2, b"", None), (-3, b"\xff", {"KEYS": "k"})]
    data = oracle.encode_inner_batch("t", entries, queue_offset=7, properties={"UNIQ_KEY": "u"})
    record = only_record(data)
    assert record["properties"] == {"UNIQ_KEY": "u", "INNER_NUM": "3", "INNER_BASE": "7"}
    messages = oracle.read([record])
    assert [(m["queueOffset"], m["flag"], m["body"], m["tags"], m["keys"]) for m in messages] == [
        (7, 1, b"one", "A", None),
        (8, 2, b"", None, None),
        (9, -3, b"\xff", None, "k"),
    ]
    assert {m["storeSize"] for m in messages} == {len(data)}
    assert [m["storedProperties"] for m in messages] == [b"TAGS\x01A\x02", b"", b"KEYS\x01k\x02"]
    assert only_record(oracle.encode_inner_batch("t", entries))["properties"]["INNER_BASE"] == "0"
    assert oracle.read([record], unwrapping=False) == [{**record, "body": record["storedBody"]}]


def test_compressed_inner_batch():
    wire = oracle.encode_batch([(1, b"one", None), (2, b"two", None)])
    flag = oracle.COMPRESSED | oracle.INNER_BATCH | oracle.NEED_UNWRAP
    assert [m["body"] for m in content(zlib.compress(wire), flag)] == [b"one", b"two"]
    assert [m["body"] for m in content(zlib.compress(wire), flag, decompress=False)] == [zlib.compress(wire)]
    assert [m["body"] for m in content(wire, flag & ~oracle.COMPRESSED, decompress=False)] == [b"one", b"two"]


@pytest.mark.parametrize("flag", [oracle.INNER_BATCH, oracle.NEED_UNWRAP])
def test_a_single_bit_is_not_an_inner_batch(flag):
    assert [m["body"] for m in content(b"not a batch", flag)] == [b"not a batch"]


WIRE = oracle.encode_batch([(0, b"body", {"a": "b"})])  # 22 + 4 + 4 bytes, properties length at 24


@pytest.mark.parametrize(
    "wire",
    [
        WIRE[:-1],
        WIRE + b"\0",
        WIRE[:21],
        patched(WIRE, 0, ">i", len(WIRE) - 1),
        patched(WIRE, 16, ">i", -1),
        patched(WIRE, 16, ">i", len(WIRE) - 20),
        patched(WIRE, 16, ">i", 0x7FFFFFFF),
        patched(WIRE, 24, ">h", -1),
        patched(WIRE, 24, ">h", 5),
    ],
)
def test_bad_inner_batch(wire):
    (lost,) = content(wire, oracle.INNER_BATCH | oracle.NEED_UNWRAP)
    assert lost.reason == "bad_inner_batch"


def test_json_form():
    properties = {"KEYS": "k", "a": "ä"}
    (message,) = oracle.read([only_record(oracle.encode("t", "ü".encode(), properties=properties))])
    told_as = oracle.json_form(message)
    assert told_as["body"] == "ü"
    assert told_as["keys"] == "k"
    assert not {"tags", "file", "bodyBase64", "magic"} & told_as.keys()
    (message,) = oracle.read([only_record(oracle.encode("t", b"\xff"))])
    assert oracle.json_form(message)["bodyBase64"] == "/w=="
    assert "body" not in oracle.json_form(message)


# ---------------------------------------------------------------------------------------------- properties


@given(strategies.messages())
def test_a_record_is_decoded_as_it_was_encoded(message):
    r = only_record(oracle.encode(**message, queue_offset=3, phy_offset=77), base=77)
    fields = {
        "topic": "topic",
        "storedBody": "body",
        "queueId": "queue_id",
        "flag": "flag",
        "bornTimestamp": "born_timestamp",
        "storeTimestamp": "store_timestamp",
        "reconsumeTimes": "reconsume_times",
        "preparedTransactionOffset": "prepared_transaction_offset",
    }
    assert {key: r[key] for key in fields} == {key: message[name] for key, name in fields.items()}
    assert (r["queueOffset"], r["physicalOffset"]) == (3, 77)
    assert r["sysFlag"] & ~0x30 == message["sys_flag"] & ~0x30
    for key, name in (("bornHost", "born_host"), ("storeHost", "store_host")):
        assert oracle.host_bytes(oracle.host_pair(r[key])) == oracle.host_bytes(message[name])
    found = r["properties"]
    if isinstance(message["properties"], dict):
        assert {k: v for k, v in found.items() if k != "__CRC32#"} == message["properties"]
    assert ("__CRC32#" in found) >= message["property_crc"]


@given(strategies.logs(odd=False))
def test_a_whole_log_is_read_back(log):
    items = oracle.walk_log(log.files, crc="full")
    assert oracle.damage(items) == []
    assert oracle.damage(oracle.read(items)) == []
    records = oracle.records(items)
    assert [r["queueOffset"] for r in records] == list(range(len(log.messages)))
    assert [r["storedBody"] for r in records] == [m["body"] for m in log.messages]
    # The items are adjacent, and only a blank record ends a file.
    at = log.files[0][0]
    for item in items:
        start, stop = (item["start"], item["stop"]) if isinstance(item, dict) else item[:2]
        assert start == at
        at = stop
        assert isinstance(item, oracle.Blank) == (at % log.file_size == 0)


@pytest.mark.long
@given(strategies.damaged_logs(), st.sampled_from(["none", "body", "full"]))
def test_a_scan_of_a_damaged_log_covers_all_bytes(log, crc):
    """Whatever the damage, the items of a file are adjacent from its first byte on, and only zeros follow."""
    files = dict(log.files)
    items = oracle.walk_log(log.files, crc=crc)
    at = None
    for item in items:
        start, stop = (item["start"], item["stop"]) if isinstance(item, dict) else item[:2]
        assert start < stop
        assert start == at or start in files
        at = stop
    if items:
        base = max(base for base in files if base < at)
        assert not any(files[base][at - base :])
        assert not any(any(data) for later, data in files.items() if later > base)
    else:
        assert not any(any(data) for data in files.values())


@pytest.mark.long
@given(strategies.damaged_logs(in_place=True, odd=False))
def test_untouched_records_survive(log):
    """An unchanged record is read, whatever happened around it."""
    clean = oracle.walk_log(oracle.lay_out(log.messages, log.file_size, base=log.files[0][0]))
    untouched = [
        r["start"]
        for r in oracle.records(clean)
        if all(stop <= r["start"] or r["stop"] <= start for start, stop in log.touched)
    ]
    read = {r["start"] for r in oracle.records(oracle.walk_log(log.files))}
    assert read.issuperset(untouched)
