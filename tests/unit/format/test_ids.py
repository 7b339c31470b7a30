"""Message ids: their parts, compared with RocketMQ's own ids, the oracle and Python's ipaddress."""

import datetime
import ipaddress
import struct
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, stores, strategies

import rocketc
from rocketc.format.ids import OffsetId, UniqueId, decode_offset_id, decode_unique_id

UTC = datetime.timezone.utc
addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.just(ipaddress.ip_address("::ffff:1.2.3.4")))


def unique_ids(store):
    """Return the valid unique ids of a golden store's messages, with RocketMQ's data of each message."""
    for record in store.messages:
        text = record["properties"].get("UNIQ_KEY", "")
        if len(text) in (32, 56) and all(char in "0123456789ABCDEF" for char in text):
            yield text, record


@pytest.mark.parametrize("name", stores.WHOLE)
def test_offset_ids_of_golden_stores(golden, name):
    for record in golden(name).messages:
        found = decode_offset_id(record["msgId"])
        assert (oracle.java_host(found.store_host), found.phy_offset) == (record["storeHost"], record["phyOffset"])
        assert found.encode() == record["msgId"]
        assert found.doubts() == [] and decode_unique_id(record["msgId"]).doubts() != []


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "flights-2013-01"])
def test_unique_ids_of_golden_stores(golden, name):
    """The clients ran in UTC, and sent a message at most some seconds after they had created its id."""
    counters = {}
    ids = list(unique_ids(golden(name)))
    assert len(ids) > 1300
    for text, record in ids:
        found = decode_unique_id(text)
        assert found.encode() == text
        assert found.doubts() == [] and decode_offset_id(text).doubts() != []
        stored = datetime.datetime.fromtimestamp(record["storeTimestamp"] / 1000, UTC)
        born = found.born_near(stored)
        assert born == found.born(stored.year, stored.month)
        if not record["topic"].startswith(("%", "SCHEDULE", "rmq_sys")):  # delayed messages are stored again later
            assert stored - born < datetime.timedelta(minutes=3)
        counters.setdefault((found.ip, found.pid, found.class_loader_hash), set()).add(found.counter)
    assert all(max(seen) - min(seen) < 40_000 for seen in counters.values())


@given(strategies.hosts, st.integers(-(1 << 63), (1 << 63) - 1))
def test_offset_ids_agree_with_the_oracle_and_with_messages(host, phy_offset):
    text = oracle.message_id(oracle.host_bytes(host), phy_offset)
    found = decode_offset_id(text)
    assert found.store_host == oracle.host_text(oracle.host_bytes(host))
    assert (found.port, found.phy_offset) == (host[1], phy_offset)
    assert found == decode_offset_id(text.lower())
    message = rocketc.Message.of(rocketc.encode("t", b"", store_host=host, phy_offset=phy_offset))
    assert (found.encode(), found.store_host) == (message.msg_id, message.store_host)


@given(addresses, strategies.INT32, strategies.INT64)
def test_offset_ids_are_decoded_as_they_were_encoded(address, port, phy_offset):
    text = OffsetId(str(address), port, phy_offset).encode()
    assert len(text) == (32 if address.version == 4 else 56)
    found = decode_offset_id(text)
    assert (ipaddress.ip_address(found.host), found.port, found.phy_offset) == (address, port, phy_offset)
    assert found.encode() == text


@given(addresses, st.integers(0, 0xFFFF), strategies.INT32, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFF))
def test_unique_ids_are_decoded_as_they_were_encoded(address, pid, loader, month_ms, counter):
    text = UniqueId(str(address), pid, loader, month_ms, counter).encode()
    raw = address.packed + struct.pack(">HiIH", pid, loader, month_ms, counter)
    assert text == raw.hex().upper()
    found = decode_unique_id(text)
    assert ipaddress.ip_address(found.ip) == address
    assert (found.pid, found.class_loader_hash, found.month_ms, found.counter) == (pid, loader, month_ms, counter)
    assert found == decode_unique_id(text.lower())
    assert (month_ms > (31 * 24 + 1) * 3_600_000 - 1) == ("its time is more than a month" in found.doubts())


@given(st.ip_addresses(v=6))
def test_ipv6_is_printed_as_in_messages(address):
    assert decode_unique_id(address.packed.hex() + 24 * "0").ip == oracle.ipv6_text(address.packed)


@pytest.mark.parametrize("decode", [decode_offset_id, decode_unique_id])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a message id: it has 0 hex digits, not 32 (IPv4) or 56 (IPv6)"),
        ("AB" * 15, "it has 30 hex digits"),
        ("A" * 33, "it has 33 hex digits"),
        ("0A" * 17, "it has 34 hex digits"),
        ("A" * 12 + "G" + "A" * 19, "character 13 is 'G', not a hex digit"),
        ("0x" + "A" * 30, "character 2 is 'x'"),
        ("A" * 31 + " ", "character 32 is ' '"),
        ("٣" * 32, "character 1 is '٣'"),
        ("A" * 31 + "\n", r"character 32 is '\n'"),
    ],
)
def test_an_invalid_id_is_reported_with_the_position(decode, text, says):
    with pytest.raises(ValueError) as raised:
        decode(text)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("found", "doubts"),
    [
        (OffsetId("10.0.0.1", 65535, 1 << 53), []),
        (OffsetId("10.0.0.1", 65536, 0), ["port 65536 is not valid"]),
        (OffsetId("10.0.0.1", -1, 0), ["port -1 is not valid"]),
        (OffsetId("10.0.0.1", 1, (1 << 53) + 1), ["the physical offset is too large for a log"]),
        (OffsetId("10.0.0.1", 1, -1), ["the physical offset is negative"]),
        (OffsetId("0.0.0.0", 1, 0), ["0.0.0.0 can't be the address of a broker"]),
        (OffsetId("239.1.1.1", 1, 0), ["239.1.1.1 can't be the address of a broker"]),
        (OffsetId("255.255.255.255", 1, 0), ["255.255.255.255 can't be the address of a broker"]),
        (OffsetId("::", 1, 0), [":: can't be the address of a broker"]),
        (OffsetId("ff02::1", 1, 0), ["ff02::1 can't be the address of a broker"]),
        (OffsetId("fe80::1", 1, 0), []),
        (UniqueId("1.2.3.4", 0, 0, 0, 0), ["process id 0 is not valid"]),
    ],
)
def test_doubts(found, doubts):
    assert found.doubts() == doubts


def id_of(days, hours=0):
    return UniqueId("10.0.0.1", 1, 0, (24 * days + hours) * 3_600_000, 0)


def test_the_time_of_an_id_in_a_month():
    assert id_of(30, 23).born(2026, 12) == datetime.datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert id_of(24, 21).month_ms > 1 << 31  # Java writes it as a negative number
    for year, month in ((2026, 11), (2026, 2), (9999, 2)):
        with pytest.raises(ValueError, match="is not that long"):
            id_of(30).born(year, month)
    with pytest.raises(ValueError, match="9999-12 is not that long"):
        id_of(31).born(9999, 12)
    shanghai = datetime.timezone(datetime.timedelta(hours=8))
    assert id_of(0).born(2026, 1, shanghai).isoformat() == "2026-01-01T00:00:00+08:00"
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")  # on 25 October 2026 its clocks go back
    assert id_of(24, 2).born(2026, 10, berlin).isoformat() == "2026-10-25T02:00:00+02:00"
    assert id_of(24, 3).born(2026, 10, berlin).isoformat() == "2026-10-25T02:00:00+01:00"
    assert id_of(31).born(2026, 10, berlin).isoformat() == "2026-10-31T23:00:00+01:00"


@pytest.mark.parametrize(
    ("found", "now", "born"),
    [
        (id_of(4), "2026-11-05T00:00:00", "2026-11-05"),
        (id_of(4), "2026-11-04T23:59:59", "2026-10-05"),
        (id_of(4), "2026-01-04T23:59:59", "2025-12-05"),
        (id_of(30), "2026-03-05T00:00:00", "2026-01-31"),
        (id_of(30), "2026-10-05T00:00:00", "2026-08-31"),
        (id_of(29), "2026-02-28T00:00:00", "2026-01-30"),
        (id_of(31), "2026-02-28T00:00:00", None),
        (id_of(30), "0001-01-02T00:00:00", None),
    ],
)
def test_the_latest_time_of_an_id(found, now, born):
    when = found.born_near(datetime.datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert born == (when.date().isoformat() if when else None)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="without a time zone"):
        id_of(0).born_near(datetime.datetime(2026, 1, 1))
