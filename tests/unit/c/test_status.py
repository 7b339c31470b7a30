"""status.h: a number never gets a second meaning."""

import re

from support.native import ROOT, native

NUMBERS = {
    "RC_OK": 0,
    "RC_END": -1,
    "RC_BLANK": -2,
    "RC_MORE": -3,
    "RC_BAD_SIZE": -10,
    "RC_BAD_MAGIC": -11,
    "RC_TRUNCATED": -12,
    "RC_BAD_BODY_LENGTH": -13,
    "RC_BAD_TOPIC_LENGTH": -14,
    "RC_BAD_PROPERTIES_LENGTH": -15,
    "RC_BAD_LENGTH": -16,
    "RC_BAD_BODY_CRC": -17,
    "RC_MISSING_PROPERTY_CRC": -18,
    "RC_BAD_PROPERTY_CRC": -19,
    "RC_BAD_PHYSICAL_OFFSET": -20,
    "RC_BAD_PROPERTY": -21,
    "RC_BAD_COMPRESSION": -30,
    "RC_TOO_LARGE": -31,
    "RC_BAD_INNER_BATCH": -32,
    "RC_ZEROED": -40,
    "RC_BAD_BLANK": -41,
    "RC_FILE_CUT": -42,
    "RC_BAD_CHAIN": -43,
    "RC_BAD_UNIT": -44,
    "RC_NO_ROOM": -50,
    "RC_BAD_ARGUMENT": -51,
    "RC_PROPERTIES_TOO_LONG": -52,
    "RC_TOPIC_TOO_LONG": -53,
}


def test_no_number_has_two_names():
    text = (ROOT / "include/rocketc/status.h").read_text()
    numbers = re.findall(r"^ +(RC_\w+) = (-?\d+),", text, re.MULTILINE)
    assert len(numbers) > 40
    assert len({number for _, number in numbers}) == len(numbers)


def test_numbers_do_not_change():
    assert {name: getattr(native, name) for name in NUMBERS} == NUMBERS
