"""The members of answers are checked: missing ones, wrong types, names that are objects."""

import re

import pytest

from rocketc.client.bodies import Fields, parse_fields


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"[1]", "the body is [1], which is not an object"),
        (b'{"a":', "line 1"),
        (b"\xff", "not UTF-8"),
        (b'{{"a":{}}:1}', "an object or list in a name"),
        (b'{{"a":1:1}', "expected , or }"),
        (b'{{"a" 1}:1}', "expected :"),
        (b'{{{"a":1}:1}:1}', "expected a name"),
    ],
)
def test_bodies_that_are_refused(body, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_fields(body)


@pytest.mark.parametrize(
    ("read", "value", "says"),
    [
        (lambda f: f.text("a"), 1, "a is 1, which is not a text"),
        (lambda f: f.text("a"), None, "a is missing"),
        (lambda f: f.number("a"), True, "a is True, which is not a number"),
        (lambda f: f.number("a"), 1.5, "a is 1.5, which is not a number"),
        (lambda f: f.real("a"), False, "a is False, which is not a number"),
        (lambda f: f.real("a"), "1", "a is '1', which is not a number"),
        (lambda f: f.truth("a"), 1, "a is 1, which is not true or false"),
        (lambda f: f.names("a"), "b", "a is 'b', which is not a list"),
        (lambda f: f.names("a"), [1], "a contains 1, which is not a text"),
        (lambda f: f.objects("a"), {}, "a is {}, which is not a list"),
        (lambda f: f.objects("a"), [1], "a is 1, which is not an object"),
        (lambda f: f.texts("a"), {"b": 1}, "a contains 1, which is not a text"),
        (lambda f: list(f.table("a")), {"b": 1}, "a is 1, which is not an object"),
        (lambda f: list(f.lists("a")), {"b": "c"}, "a is 'c', which is not a list"),
        (lambda f: list(f.numbers("a")), {"b": "c"}, "a contains 'c', which is not a number"),
        (lambda f: f.text("a"), ["x" * 99], "a is ['" + "x" * 38 + "..., which is not a text"),
    ],
)
def test_members_of_a_wrong_type(read, value, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        read(Fields({"a": value}))


def test_defaults_and_names_that_are_objects():
    empty = Fields({"a": None})
    assert (empty.text("a", "b"), empty.number("a", 0), empty.real("a", 0), empty.truth("a", False)) == (
        "b",
        0,
        0,
        False,
    )
    assert (empty.names("a"), empty.objects("a"), empty.texts("a"), list(empty.table("a"))) == ([], [], {}, [])
    fields = parse_fields(b'{"t":{{"queueId":1,"topic":"x"}:{"n":7},{"queueId":2,"topic":"x"}:{"n":8}}}')
    found = {(key.text("topic"), key.number("queueId")): one.number("n") for key, one in fields.table("t")}
    assert found == {("x", 1): 7, ("x", 2): 8}
