"""Changes of the files of accounts, as mqadmin asks for them. The functions return a file's new data, and write it.

Source: RocketMQ PlainPermissionManager.updateAccessConfig, deleteAccessConfig, updateGlobalWhiteAddrsConfig.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import Any

from rocketc.acl.accounts import LEAST, WORDS, read_account
from rocketc.acl.addresses import parse_addresses
from rocketc.acl.rule_files import yaml_module
from rocketc.files.durable import errors_named, sync_folder, write_all

Data = dict[str, Any]

_TEXTS = ("secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LISTS = ("topicPerms", "groupPerms")


def with_account(data: Mapping[str, Any], fields: Mapping[str, Any], now: int) -> Data:
    """Return the data of a file with an account added or changed.

    fields  of request 50, by name. None or a missing one: the old value. `secretKey` is needed, `admin` always set
    now     ms since the epoch
    Raises ValueError; no text contains secrets.

    >>> with_account({}, {"accessKey": "account", "secretKey": "12345678"}, 0)["accounts"]
    [{'accessKey': 'account', 'secretKey': '12345678', 'admin': False}]
    """
    access_key = str(fields.get("accessKey") or "")
    if len(str(fields.get("secretKey") or "")) < LEAST:
        raise ValueError(f"account {access_key[:40]!r}: secretKey must have {LEAST} characters or more")
    accounts = [dict(one) for one in data.get("accounts") or ()]
    account: Data = next((one for one in accounts if str(one.get("accessKey")) == access_key), {})
    if not account:
        account["accessKey"] = access_key
        accounts.append(account)
    for name in _TEXTS:
        if fields.get(name) is not None:
            account[name] = str(fields[name])
    account["admin"] = bool(fields.get("admin"))
    for name in _LISTS:
        if fields.get(name) is not None:
            account[name] = [one.strip() for one in str(fields[name]).split(",") if one.strip()]
    words = [account.get("defaultTopicPerm"), account.get("defaultGroupPerm")]
    words += [one.partition("=")[2].strip() for name in _LISTS for one in account.get(name) or () if "=" in str(one)]
    for word in words:
        if word is not None and word not in WORDS:
            raise ValueError(f"{str(word)[:40]!r} is not a permission; allowed are {', '.join(WORDS)}")
    read_account(account)
    return _changed({**data, "accounts": accounts}, now)


def without_account(data: Mapping[str, Any], access_key: str, now: int) -> Data:
    """Return the data of a file without an account.

    >>> without_account({"accounts": [{"accessKey": "account"}]}, "account", 0)["accounts"]
    []
    """
    kept = [dict(one) for one in data.get("accounts") or () if str(one.get("accessKey")) != access_key]
    return _changed({**data, "accounts": kept}, now)


def with_white(data: Mapping[str, Any], patterns: list[str], now: int) -> Data:
    """Return the data of a file with other global white addresses. Raises ValueError for a wrong pattern.

    >>> with_white({}, ["10.0.0.*"], 0)["globalWhiteRemoteAddresses"]
    ['10.0.0.*']
    """
    for one in patterns:
        parse_addresses(one)
    return _changed({**data, "globalWhiteRemoteAddresses": patterns}, now)


def _changed(data: Data, now: int) -> Data:
    versions = data.get("dataVersion")
    first = versions[0] if isinstance(versions, list) and versions else {}
    counter = first.get("counter") if isinstance(first, dict) else None
    data["dataVersion"] = [{"counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": now}]
    return data


def write_data(path: str, data: Mapping[str, Any]) -> None:
    """Write a file of accounts as a whole, durably. Only its owner can read a new one; comments are lost.

    Raises StoreIOError; the file is then the old or the new one.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plain_acl.yml"
    >>> write_data(str(path), {"accounts": []})
    >>> path.read_text()
    'accounts: []\\n'
    """
    text: str = yaml_module().safe_dump(dict(data), sort_keys=False, allow_unicode=True)
    new = f"{path}.tmp"
    with errors_named(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
            write_all(fd, text.encode("utf-8", "replace"))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(new, path)
    sync_folder(os.path.dirname(path) or ".")
