"""How much a name server keeps. RocketMQ's name server does not have these limits.

The names of topics have up to 127 bytes in RocketMQ, those of retry topics 255. Names of brokers and clusters are also
names of topics, and addresses are not longer.
"""

from __future__ import annotations

from rocketc.errors import BadRequestError

NAME_MOST = 255  # bytes of UTF-8
BROKERS_MOST = 65_536
BROKERS_OF_PEER_MOST = 256  # of one connection
PAIRS_MOST = 1_000_000  # of topic and broker
PAIRS_OF_PEER_MOST = 250_000  # of the brokers of one connection; about 60 MB, and 350 MB with the longest names
FILTER_SERVERS_MOST = 64  # of one broker
VALUE_MOST = 65_536  # bytes of a key-value setting
VALUES_MOST = 16_384  # key-value settings and namespaces in all
KV_BYTES_MOST = 4 << 20  # bytes of their namespaces, keys and values in all: each change writes them all
SETTINGS_MOST = 65_536  # bytes of the body that changes settings
SMALL_MOST = 131_072  # bytes of a body, or a part of one, without a table of topics or brokers
ROUTE_MOST = 1 << 20  # bytes of the body with the brokers of one topic
JSON_OBJECTS_MOST = 1_000_000  # objects and lists of a body; a registration has two for each topic
JSON_INTEGERS_MOST = 65_536  # names of a body that are integers
JSON_SEARCHED_MOST = 16_384  # characters of a body that is searched for its error, which takes 2 us for each
_BYTES_OF_CHARACTER = 4  # at most


def size_of(text: str) -> int:
    """Return the bytes of a text in UTF-8.

    >>> size_of("topic"), size_of("订")
    (5, 3)
    """
    return len(text.encode("utf-8", "surrogatepass"))


def check_name(what: str, text: str, most: int = NAME_MOST) -> str:
    """Return a text if it has at most `most` bytes of UTF-8. Raises BadRequestError, which begins with `what`.

    >>> check_name("brokerName", "broker-a")
    'broker-a'
    """
    if len(text) > most // _BYTES_OF_CHARACTER and (size := size_of(text)) > most:
        raise BadRequestError(f"{what} has {size} bytes of UTF-8; a name server keeps at most {most}")
    return text


def cut(text: str) -> str:
    """Return a text for a remark: as much of it as a name may have.

    >>> len(cut("x" * 1000))
    255
    """
    return text[:NAME_MOST]
