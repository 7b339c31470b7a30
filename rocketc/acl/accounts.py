"""Accounts, and what each may do.

Source: RocketMQ PlainAccessResource, PlainAccessConfig, Permission, PlainPermissionManager.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketc._layout import RETRY_PREFIX
from rocketc.acl.addresses import NOWHERE, Addresses, parse_addresses
from rocketc.remoting.signing import signing_key

LEAST = 7  # characters of an access key and of a secret key


class Permission(enum.IntFlag):
    """What an account may do with a topic or a group. DENY wins over the others."""

    DENY = 1
    PUB = 4
    SUB = 8


WORDS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


@dataclass(frozen=True)
class Account:
    """One account. Its secret is in no text that repr() makes.

    white     addresses from which a request that names the account is accepted without a signature
    is_admin  may send requests that change topics, groups, settings and accounts
    perms     permissions of topics, and of groups under the names of their retry topics
    faults    words that are not permissions: they count as DENY
    """

    access_key: str
    secret_key: str = field(repr=False)
    white: Addresses = NOWHERE
    is_admin: bool = False
    default_topic: Permission = Permission.DENY
    default_group: Permission = Permission.DENY
    perms: Mapping[str, Permission] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    key: hmac.HMAC = field(init=False, repr=False, compare=False)  # the start of its signatures

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", signing_key(self.secret_key))

    def may(self, name: str, needed: Permission) -> bool:
        """Whether the account has a permission for a topic, or for a group under the name of its retry topic.

        >>> Account("account", "12345678", perms={"orders": Permission.PUB}).may("orders", Permission.PUB)
        True
        """
        owned = self.perms.get(name)
        if owned is None:
            owned = self.default_group if name.startswith(RETRY_PREFIX) else self.default_topic
        return not owned & Permission.DENY and bool(needed & owned)


def read_account(data: object) -> Account:
    """Return the account of an entry of `accounts`. Unknown members are ignored.

    Raises ValueError, whose text does not contain secrets.

    >>> read_account({"accessKey": "account", "secretKey": 12345678, "topicPerms": ["orders=PUB"]}).perms
    {'orders': <Permission.PUB: 4>}
    """
    if not isinstance(data, dict):
        raise ValueError("an account is not a mapping")
    access_key, secret_key = _text(data, "accessKey"), _text(data, "secretKey")
    if len(access_key) < LEAST or len(secret_key) < LEAST:
        raise ValueError(f"account {access_key[:40]!r}: accessKey and secretKey must have {LEAST} characters or more")
    try:
        faults: list[str] = []
        perms = {
            **_entries(data, "topicPerms", "", faults),
            **_entries(data, "groupPerms", RETRY_PREFIX, faults),
        }
        return Account(
            access_key,
            secret_key,
            parse_addresses(_text(data, "whiteRemoteAddress")),
            _truth(data, "admin"),
            _permission(data.get("defaultTopicPerm"), faults),
            _permission(data.get("defaultGroupPerm"), faults),
            perms,
            tuple(faults),
        )
    except ValueError as error:
        raise ValueError(f"account {access_key[:40]!r}: {error}") from None


def _text(data: Mapping[Any, Any], name: str) -> str:
    """A text. YAML reads digits without quotes as a number; other values would not be what their writer meant."""
    value = data.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{name} is not a text; put quotes around it")
    return str(value)


def _truth(data: Mapping[Any, Any], name: str) -> bool:
    value = data.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"{name} is neither true nor false")


def _permission(word: object, faults: list[str]) -> Permission:
    """The permission of a word. An unknown word is DENY, as in RocketMQ."""
    if word is None:
        return Permission.DENY
    found = WORDS.get(word) if isinstance(word, str) else None
    if found is None:
        faults.append(str(word)[:40])
        return Permission.DENY
    return found


def _entries(data: Mapping[Any, Any], name: str, prefix: str, faults: list[str]) -> dict[str, Permission]:
    entries = data.get(name)
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise ValueError(f"{name} is not a list")
    found = {}
    for entry in entries:
        parts = entry.split("=") if isinstance(entry, str) else []
        if len(parts) != 2:
            raise ValueError(f"{name} has the entry {str(entry)[:100]!r}, which is not like name=PUB")
        found[prefix + parts[0].strip()] = _permission(parts[1].strip(), faults)
    return found
