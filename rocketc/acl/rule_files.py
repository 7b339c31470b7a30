"""The files of accounts: plain_acl.yml and those in the folder acl. They are read whole, and again when they change.

Source: RocketMQ PlainPermissionManager, AclFileWatchService.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rocketc.acl.accounts import Account, read_account
from rocketc.acl.addresses import NOWHERE, Addresses, parse_addresses

_log = logging.getLogger("rocketc.acl")

DEFAULT_FILE = os.path.join("conf", "plain_acl.yml")
FOLDER = os.path.join("conf", "acl")
FILE_MOST = 16 << 20  # bytes of a file
_TOOLS = "tools.yml"  # credentials of the admin tool, which are not accounts

Stamps = dict[str, tuple[int, int, int, int]]  # by path: what changes when a file changes
Version = tuple[int, int]  # counter; ms since the epoch


@dataclass(frozen=True)
class Rules:
    """What all files say. It never changes: new files make new rules.

    white     addresses that need neither account nor signature
    accounts  by access key
    files     by path: what the file says
    """

    white: Addresses = NOWHERE
    accounts: Mapping[str, Account] = field(default_factory=dict)
    files: Mapping[str, RuleFile] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleFile:
    """What one file says.

    data  the whole file, with secrets
    """

    path: str
    white: tuple[Addresses, ...] = ()
    accounts: tuple[Account, ...] = ()
    version: Version | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)


@functools.cache
def yaml_module() -> ModuleType:
    """Return pyyaml, which only ACL needs. Raises ValueError if it is not installed."""
    try:
        import yaml
    except ImportError:
        raise ValueError("aclEnable=true needs the package pyyaml: pip install 'rocketc[acl]'") from None
    found: ModuleType = yaml
    return found


class RuleFiles:
    """Reads the files below a home folder, and notices changes. Methods may block; one thread at a time.

    home          folder that contains conf
    default_file  path below it

    >>> import pathlib, tempfile
    >>> home = tempfile.mkdtemp()
    >>> conf = pathlib.Path(home, "conf")
    >>> conf.mkdir()
    >>> _ = (conf / "plain_acl.yml").write_text("accounts: [{accessKey: account, secretKey: '12345678'}]")
    >>> list(RuleFiles(home).load().accounts)
    ['account']
    """

    def __init__(self, home: str, default_file: str = DEFAULT_FILE) -> None:
        self.default_file = os.path.join(home, default_file.lstrip("/"))
        self._folder = os.path.join(home, FOLDER)
        self._rules = Rules()
        self._loaded: Stamps = {}
        self._seen: Stamps = {}
        self._failed: Stamps | None = None
        self._complaint = ""  # the last error that was logged

    def load(self) -> Rules:
        """Read all files. Raises ValueError or OSError; then nothing has changed."""
        stamps = self._stamps()
        files = [read_file(path) for path in stamps]
        if stamps != self._stamps():
            raise ValueError("a file of accounts changed while it was read")
        for file in files:
            before = self._rules.files.get(file.path)
            if before is not None and before.data and not file.data:
                raise ValueError(f"{file.path}: the file is empty now")
        self._rules, self._loaded = _united(files), stamps
        self._seen, self._failed, self._complaint = stamps, None, ""
        if not self._rules.accounts and not self._rules.white:
            _log.warning("%s: there are no accounts, so all requests are refused", self.default_file)
        return self._rules

    def poll(self) -> Rules | None:
        """Return new rules if files have changed, and have not changed since the last call; otherwise None.

        A file that a program is writing is therefore not read. On an error the old rules stay. It is logged once. What
        cannot be read is tried again at the next call; wrong files are tried again when they change.
        """
        try:
            stamps = self._stamps()
            is_settled, self._seen = stamps == self._seen, stamps
            if stamps == self._loaded:
                self._complaint = ""
            if not is_settled or stamps in (self._loaded, self._failed):
                return None
            return self.load()
        except (ValueError, OSError) as error:
            self._failed = self._seen if isinstance(error, ValueError) else None
            if str(error) != self._complaint:
                _log.warning("the changed files of accounts are not used, the old ones stay: %s", error)
            self._complaint = str(error)
            return None

    def _stamps(self) -> Stamps:
        """Raises OSError if a folder or a file cannot be read: it may have accounts that another file refuses."""
        found: Stamps = {}
        for path in (*sorted(self._in_folder()), self.default_file):
            try:
                of = os.stat(path)
            except FileNotFoundError:
                continue
            found[path] = of.st_mtime_ns, of.st_ctime_ns, of.st_size, of.st_ino
        return found

    def _in_folder(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder, onerror=_refuse):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith((".yml", ".yaml")) and name != _TOOLS and path != self.default_file:
                    yield path


def _refuse(error: OSError) -> None:
    """Raise an error of os.walk(), which otherwise skips the folder; one that does not exist is skipped."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _united(files: list[RuleFile]) -> Rules:
    accounts: dict[str, Account] = {}
    white = NOWHERE
    for file in files:
        for addresses in file.white:
            white |= addresses
        for account in file.accounts:
            if account.access_key in accounts:
                _log.warning("%s: account %s is defined twice; the first one counts", file.path, account.access_key)
                continue
            accounts[account.access_key] = account
            for word in account.faults:
                _log.warning(
                    "%s: account %s: %s is not a permission; it counts as DENY", file.path, account.access_key, word
                )
    return Rules(white, accounts, {file.path: file for file in files})


def read_file(path: str) -> RuleFile:
    """Read one file. Raises OSError, or ValueError with path and place; no text contains secrets.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plain_acl.yml"
    >>> _ = path.write_text("globalWhiteRemoteAddresses: [10.0.0.*]")
    >>> read_file(str(path)).white[0].matches("10.0.0.7")
    True
    """
    with open(path, "rb") as file:
        text = file.read(FILE_MOST + 1)
    if len(text) > FILE_MOST:
        raise ValueError(f"{path}: the file has more than {FILE_MOST} bytes")
    yaml = yaml_module()
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:  # its text has lines of the file
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}"
        raise ValueError(f"{path}{place}: this is not YAML") from None
    except Exception:  # pyyaml also raises KeyError, IndexError, AttributeError and others
        raise ValueError(f"{path}: a value is not possible in YAML, or is nested too deep") from None
    try:
        return _rule_file(path, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _rule_file(path: str, data: object) -> RuleFile:
    if data is None:
        return RuleFile(path)
    if not isinstance(data, dict):
        raise ValueError("the file is not a mapping with `accounts`")
    white = data.get("globalWhiteRemoteAddresses")
    accounts = data.get("accounts")
    if not isinstance(white, list | None) or not isinstance(accounts, list | None):
        raise ValueError("globalWhiteRemoteAddresses or accounts is not a list")
    if not all(isinstance(one, str | None) for one in white or ()):
        raise ValueError("globalWhiteRemoteAddresses has an entry that is not a text")
    return RuleFile(
        path,
        tuple(parse_addresses(one or "") for one in white or ()),
        tuple(read_account(one) for one in accounts or ()),
        _version(data.get("dataVersion")),
        data,
    )


def _version(value: object) -> Version | None:
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return None
    counter, timestamp = first.get("counter"), first.get("timestamp")
    return (counter, timestamp) if isinstance(counter, int) and isinstance(timestamp, int) else None
