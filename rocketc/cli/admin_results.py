"""What `rocketc admin` says of a change: which servers made it, and which ones failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rocketc.cli.exit_codes import COULD_NOT, DONE
from rocketc.cli.output import note
from rocketc.client.admin import Admin
from rocketc.errors import ChangeError


@dataclass(frozen=True)
class Outcome:
    """A change of several servers.

    changed  what those that made it returned, by name
    failed   why the other ones did not, by name

    >>> Outcome({"broker-a": 3}, {"broker-b": "no connection"}).json()[1]
    {'server': 'broker-b', 'changed': False, 'fault': 'no connection'}
    """

    changed: dict[str, Any]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> str:
        return ", ".join(self.changed)

    def json(self) -> list[dict[str, Any]]:
        """Return what each server did, for an object of JSON."""
        made = [{"server": name, "changed": True, "fault": None} for name in self.changed]
        return [*made, *({"server": name, "changed": False, "fault": why} for name, why in self.failed.items())]

    def conclude(self, what: str = "not changed on", advice: str = "") -> int:
        """Name the servers that failed on stderr; return the exit code.

        advice  what the user should know if there are any
        """
        for name, why in self.failed.items():
            note(f"{what} {name}: {why}")
        if self.failed and advice:
            note(advice)
        return COULD_NOT if self.failed else DONE


def outcome_of(
    asks: Callable[[Callable[[Admin], Awaitable[Any]]], Any], work: Callable[[Admin], Awaitable[dict[str, Any]]]
) -> Outcome:
    """Run a change, which returns results by the name of a server, and return its outcome."""
    try:
        return Outcome(asks(work))
    except ChangeError as error:
        return Outcome(error.changed, {name: error.fault(name) for name in error.failed})
