"""The access control of one broker: it checks requests, notices changed files, and changes files for administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rocketc.acl.editing import Data, with_account, with_white, without_account, write_data
from rocketc.acl.needs import ReadHeartbeat
from rocketc.acl.rule_files import DEFAULT_FILE, RuleFile, RuleFiles, Rules, yaml_module
from rocketc.acl.validator import AccessValidator

POLL_SECONDS = 1.0
T = TypeVar("T")
Files = Mapping[str, RuleFile]  # by path, in the order in which they count


class AccessControl:
    """Create it before the broker serves.

    home            folder that contains conf
    default_file    plain_acl.yml, below it
    read_heartbeat  see needs_of()
    trace_topic     each account may send to it
    clock           ms since the epoch
    in_thread       files are read and written on a thread of the loop's pool; False: on the caller's
    Raises ValueError or OSError if a file is wrong, or pyyaml is missing.
    """

    def __init__(
        self,
        home: str,
        default_file: str = DEFAULT_FILE,
        *,
        read_heartbeat: ReadHeartbeat,
        trace_topic: str,
        clock: Callable[[], int],
        in_thread: bool = True,
    ) -> None:
        yaml_module()
        self._files = RuleFiles(home, default_file)
        self._clock, self._in_thread = clock, in_thread
        self._loaded_at = clock()
        self._turn = asyncio.Lock()  # one reads or writes the files
        self.check = AccessValidator(self._files.load(), read_heartbeat, trace_topic)

    @property
    def rules(self) -> Rules:
        return self.check.rules

    @property
    def default_file(self) -> str:
        return self._files.default_file

    def version_of(self, path: str) -> tuple[int, int]:
        """Return the counter and the time of a file; a file without them has 0 and the time of the start."""
        file = self.rules.files.get(path)
        return (file.version if file is not None else None) or (0, self._loaded_at)

    async def run(self) -> None:
        """Use changed files, for as long as the broker runs."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            async with self._turn:
                changed = await self._do(self._files.poll)
                if changed is not None:
                    self.check.rules = changed

    # changes

    async def set_account(self, fields: Mapping[str, Any]) -> None:
        """Add or change an account: see with_account(). Raises ValueError or OSError; then nothing has changed."""
        access_key = str(fields.get("accessKey") or "")

        def change(files: Files) -> dict[str, Data]:
            path = next(iter(_paths_of(files, access_key)), self.default_file)
            return {path: with_account(_data(files, path), fields, self._clock())}

        await self._change(change)

    async def delete_account(self, access_key: str) -> None:
        """Delete an account from all files. Raises ValueError if it is unknown.

        Raises OSError if a file can't be written. The account is then valid as before: the first file counts, and it
        is changed last.
        """

        def change(files: Files) -> dict[str, Data]:
            paths = _paths_of(files, access_key)
            if not paths:
                raise ValueError(f"the account {access_key[:40]!r} does not exist")
            return {path: without_account(_data(files, path), access_key, self._clock()) for path in reversed(paths)}

        await self._change(change)

    async def set_white(self, patterns: list[str], path: str = "") -> None:
        """Set the global white addresses of a file; "" is the default file. Raises ValueError or OSError."""
        path = path or self.default_file

        def change(files: Files) -> dict[str, Data]:
            if path != self.default_file and path not in files:
                raise ValueError(f"{path[:200]!r} is not a file of accounts")
            return {path: with_white(_data(files, path), patterns, self._clock())}

        await self._change(change)

    async def _change(self, change: Callable[[Files], dict[str, Data]]) -> None:
        """Write the new data of the files that a change returns, by path, in its order."""

        def work() -> Rules:
            files = self._files.load().files  # what is on the disk now
            for path, data in change(files).items():
                write_data(path, data)
            return self._files.load()

        async with self._turn:
            self.check.rules = await self._do(work)

    async def _do(self, work: Callable[[], T]) -> T:
        if self._in_thread:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        return work()


def _paths_of(files: Files, access_key: str) -> list[str]:
    """Return the files that have an account; the first one counts."""
    return [path for path, file in files.items() if any(one.access_key == access_key for one in file.accounts)]


def _data(files: Files, path: str) -> Mapping[str, Any]:
    return files.get(path, RuleFile(path)).data
