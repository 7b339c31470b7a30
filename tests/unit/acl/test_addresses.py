"""Address patterns, compared with what RocketMQ 4.9.7 accepts and matches."""

import json

import pytest
from support.native import ROOT

from rocketc.acl.addresses import Addresses, parse_addresses

VECTORS = json.loads((ROOT / "tests/golden/acl-vectors.json").read_text(encoding="utf-8"))["white_addresses"]
REFUSED = [one["pattern"] for one in VECTORS if "load_error" in one or "match_throws_null_pointer" in one]
KNOWN = [one for one in VECTORS if one["pattern"] not in REFUSED]


@pytest.mark.parametrize("one", KNOWN, ids=lambda one: repr(one["pattern"]))
def test_patterns_match_what_they_match_in_rocketmq(one):
    """Brackets aside: Java 14 and later put them around IPv6 addresses, and RocketMQ then finds no match."""
    addresses = parse_addresses(one["pattern"])
    found = [text for text in one["match"] + one["no_match"] if addresses.matches(text)]
    assert [text for text in found if not text.startswith("[")] == [t for t in one["match"] if not t.startswith("[")]
    assert addresses.matches("[0:0:0:0:0:0:0:1]") is addresses.matches("::1")


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_are_refused(pattern):
    """Those that RocketMQ refuses, and those with which it fails at each request."""
    with pytest.raises(ValueError, match=r"the address pattern .* is wrong"):
        parse_addresses(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["*.1.2.3", "*.*.*.1", "1.2.3.4.*", "1.2.*.x", "1.2.3.*5", "1.2.3.300-400", "::1-", "::-1", "::1-10000", "*:*",
     "fe80::1%eth0", "1.2.3.4}", "{1,2}", "1.2.3{4,5}", "1.2.3.{1,2", "1.2.3.{}", "1.2.3.{1, 2}", "::ffff-1", ",",
     "1.2.3.4,", "1.2.3.4,1.2.3.*", "\u0661.2.3.*", "x" * 100_000],
)  # fmt: skip
def test_other_wrong_patterns_are_refused_too(pattern):
    with pytest.raises(ValueError, match="is wrong") as error:
        parse_addresses(pattern)
    assert len(str(error.value)) < 250


def test_an_ipv4_peer_of_an_ipv6_socket_is_its_ipv4_address():
    assert parse_addresses("10.0.0.*").matches("::ffff:10.0.0.7")
    assert not parse_addresses("::ffff:10.0.0.7").matches("::ffff:10.0.0.7")  # as in RocketMQ


def test_scopes_are_left_out():
    assert parse_addresses("fe80::1").matches("fe80::1%eth0")


def test_sets_are_united():
    both = parse_addresses("10.0.0.1") | parse_addresses("::1")
    assert both.matches("10.0.0.1") and both.matches("::1") and not both.matches("10.0.0.2")
    assert (both | parse_addresses("*")).matches("localhost")
    assert not Addresses() and both


def test_a_range_ends_at_its_ends():
    addresses = parse_addresses("10.0.1-2.*")
    assert [addresses.matches(f"10.0.{n}") for n in ("0.255", "1.0", "2.255", "3.0")] == [False, True, True, False]
    addresses = parse_addresses("2001:db8::1-2:*")
    found = [addresses.matches(f"2001:db8::{n}") for n in ("0:ffff", "1:0", "2:ffff", "3:0")]
    assert found == [False, True, True, False]
