"""Expressions of tags, and subscriptions of heartbeats. The results of test_parse were seen on a 5.3.3 broker."""

import pytest

from rocketc.broker import subscriptions
from rocketc.broker.subscriptions import Subscription, decode_subscription, parse_subscription
from rocketc.errors import BadRequestError, SubscriptionError

HASH_OF_A = 97


def test_subscription_data_test_defaults():
    """SubscriptionDataTest."""
    made = Subscription("orders")
    assert (made.expression_type, made.tags_set, made.code_set, made.class_filter_mode) == ("TAG", set(), set(), False)


def test_filter_api_test():
    """FilterAPITest."""
    made = parse_subscription("orders", "A || B")
    assert (made.sub_string, made.tags_set, made.code_set) == ("A || B", {"A", "B"}, {65, 66})
    made = parse_subscription("orders", "a > 1", "SQL92")
    assert (made.sub_string, made.expression_type) == ("a > 1", "SQL92")
    for empty in (None, ""):
        with pytest.raises(SubscriptionError, match="the SQL92 expression of topic orders is empty"):
            parse_subscription("orders", empty, "SQL92")


@pytest.mark.parametrize(
    "text, tags",
    [
        (None, None),
        ("", None),
        ("*", None),
        (" * ", {"*"}),
        ("* || a", {"*", "a"}),
        (" ", set()),
        (" || ", set()),
        ("|| a", {"a"}),
        ("a||", {"a"}),
        ("a||b||a", {"a", "b"}),
        ("|", {"|"}),
        ("a |  b", {"a |  b"}),
        ("\u3000a\u3000", {"\u3000a\u3000"}),
        ("\x00a\t", {"a"}),
    ],
)
def test_parse(text, tags):
    made = parse_subscription("orders", text, sub_version=7)
    assert made.sub_version == 7
    assert made.takes_all is (tags is None)
    assert made.tags_set == (tags or set())
    if tags is None:
        assert made.sub_string == "*"
    assert made.matches(12345) is (tags is None)


@pytest.mark.parametrize("text", ["||", "||||"])
def test_only_separators_are_refused(text):
    with pytest.raises(SubscriptionError, match="names no tag"):
        parse_subscription("orders", text)


@pytest.mark.parametrize("kind", ["", None, "TAG"])
def test_types_that_are_tags(kind):
    assert parse_subscription("orders", "a", kind).tags_set == {"a"}


def test_limits():
    assert parse_subscription("orders", "a" * 65536).tags_set == {"a" * 65536}
    with pytest.raises(SubscriptionError, match="65537 characters; 65536 at most"):
        parse_subscription("orders", "a" * 65537)
    many = "||".join(map(str, range(subscriptions.TAGS_MOST)))
    assert len(parse_subscription("orders", many).tags_set) == 4096
    with pytest.raises(SubscriptionError, match="names 4097 tags; 4096 at most"):
        parse_subscription("orders", many + "||more")


@pytest.mark.parametrize("code", [HASH_OF_A, HASH_OF_A + (1 << 32), HASH_OF_A - (1 << 32)])
def test_matches_compares_the_lower_32_bits(code):
    assert parse_subscription("orders", "a").matches(code)
    assert not parse_subscription("orders", "a").matches(code + 1)


def test_matches_negative_hashes():
    made = Subscription("orders", "x", code_set=frozenset({-5}))
    assert made.matches(-5) and made.matches((1 << 32) - 5)
    assert not made.matches(5)


def test_class_filter_mode_and_other_types_match_everything():
    assert Subscription("orders", "a", class_filter_mode=True).matches(1)
    assert Subscription("orders", "a > 1", expression_type="SQL92").matches(1)


def test_decode():
    made = decode_subscription(
        {
            "topic": "orders", "subString": "a", "tagsSet": ["a"], "codeSet": [97], "subVersion": "8",
            "expressionType": "TAG", "classFilterMode": "false", "filterClassSource": 5,
        }
    )  # fmt: skip
    assert made == Subscription("orders", "a", frozenset({"a"}), frozenset({97}), 8)
    assert decode_subscription({"topic": "orders"}) == Subscription("orders")
    assert decode_subscription({"topic": "orders", "codeSet": None, "subString": ""}) == Subscription("orders")


@pytest.mark.parametrize(
    "wrong, error",
    [
        ([], "a subscription is not a JSON object"),
        ({}, "lacks the member topic"),
        ({"topic": None}, "lacks the member topic"),
        ({"topic": ""}, "lacks the member topic"),
        ({"topic": [5]}, "topic is not a text"),
        ({"topic": "a" * 263}, "topic has 263 characters; 262 at most"),
        ({"topic": "\ud800"}, "topic is not valid Unicode"),
        ({"topic": "t", "subString": ["a"]}, "subString is not a text"),
        ({"topic": "t", "subString": "a" * 65537}, "65536 at most"),
        ({"topic": "t", "tagsSet": {}}, "tagsSet is not a list"),
        ({"topic": "t", "tagsSet": [[1]]}, "tagsSet is not a text"),
        ({"topic": "t", "codeSet": ["x"]}, "codeSet is not a whole number"),
        ({"topic": "t", "codeSet": [1 << 31]}, "codeSet is not a whole number"),
        ({"topic": "t", "codeSet": [[1]]}, "codeSet is not a whole number"),
        ({"topic": "t", "codeSet": [1] * 4097}, "codeSet has 4097 elements"),
        ({"topic": "t", "subVersion": "1.5"}, "subVersion is not a whole number"),
        ({"topic": "t", "subVersion": "9" * 30}, "subVersion is not a whole number"),
        ({"topic": "t", "subVersion": 1 << 63}, "subVersion is not a whole number"),
        ({"topic": "t", "classFilterMode": "maybe"}, "classFilterMode is neither"),
        ({"topic": "t", "classFilterMode": [True]}, "classFilterMode is neither"),
    ],
)
def test_decode_refuses(wrong, error):
    with pytest.raises(BadRequestError, match=error):
        decode_subscription(wrong)
