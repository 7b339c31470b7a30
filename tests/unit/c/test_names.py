"""Names of properties and topics, bits of sysFlag and sizes of units are defined in layout.h and nowhere else."""

import re

import pytest
from support.native import LISTED, native
from support.sources import CYTHON, HEADERS, PYTHON, ROOT

import rocketc._layout

[LAYOUT] = [listed for listed in LISTED if listed.header == "layout.h"]
NAMES = {getattr(native, name).decode() for name in LAYOUT.texts}
MARKED = {name for name in NAMES if not re.fullmatch(r"[A-Z_]+", name)}  # no other text contains these
BITS = {getattr(native, name) for name in LAYOUT.constants if re.fullmatch(r"RC_FLAG_(?!.*SHIFT)\w+", name)}
TOKEN = re.compile(
    r'"""(?:.|\n)*?"""|/\*(?:.|\n)*?\*/|#(?!define)[^\n]*'
    r'|"(?P<double>(?:[^"\\\n]|\\.)*)"' + r"|'(?P<single>(?:[^'\\\n]|\\.)*)'" + r"|\b(?P<bits>0x[0-9A-Fa-f]+)\b|\b46\b"
)


def literals(text, numbers=True):
    """Return the literals that repeat a name of layout.h, without docstrings, comments and sentences."""
    for found in TOKEN.finditer(text):
        name = found["double"] if found["double"] is not None else found["single"]
        if name is not None:
            pieces = re.split(r"\\(?:[12]|x0[12])", name)  # at the separators of a property string
            if NAMES & set(pieces) or any(marked in name for marked in MARKED):
                yield found[0]
        elif numbers and (found[0] == "46" or (found["bits"] and int(found["bits"], 16) in BITS)):
            yield found[0]


@pytest.mark.parametrize("path", [*HEADERS, *CYTHON, *PYTHON], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_literal_outside_of_the_header(path):
    allowed = {
        "include/rocketc/layout.h": [f'"{getattr(native, name).decode()}"' for name in LAYOUT.texts],
        "rocketc/remoting/requests.py": ["46"],  # a request code
        "rocketc/broker/client_processor.py": ["46"],
        "pyx/rocketc/read/_java_numbers.pyx": ["0x80", "0x80"],  # bytes of UTF-8
        "rocketc/tables/topics.py": ['"DELAY"'],  # a value of the attribute message.type
    }
    found = list(literals(path.read_text(), numbers=path.suffix != ".h"))
    assert found == allowed.get(str(path.relative_to(ROOT)), [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name = 'KEYS'", ["'KEYS'"]),
        (r'is_name(p, n, b"TAGS\1", 5)', [r'"TAGS\1"']),
        (r'raw += b"INNER_BASE\x01%d\x02" % n', [r'"INNER_BASE\x01%d\x02"']),
        ('topic = f"%RETRY%{group}"', ['"%RETRY%{group}"']),
        ("if flag & 0x80 or flag & 0x0700:", ["0x80", "0x0700"]),
        ("UNIT_BYTES = 46", ["46"]),
        ('"""{"KEYS": "k"}, 0x80"""', []),
        ("x = 1  # the property 'KEYS', 46 bytes", []),
        ('raise ValueError("the property INNER_NUM belongs to an inner batch")', []),
        ("crc & 0x7FFFFFFF", []),
    ],
)
def test_the_search_itself(text, found):
    assert list(literals(text)) == found


def test_python_has_the_values_of_the_header():
    values = {name: value for name, value in vars(rocketc._layout).items() if name.isupper()}
    assert len(values) >= 35
    for name, value in values.items():
        expected = getattr(native, f"RC_{name}")
        assert value == (expected.decode() if isinstance(expected, bytes) else expected)
