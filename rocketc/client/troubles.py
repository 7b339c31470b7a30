"""What fails again and again, such as pulls while a broker is down: one line when it begins, one when it is over."""

from __future__ import annotations

import logging

from rocketc.errors import RocketcError

_log = logging.getLogger("rocketc.client")


class Troubles:
    """What does not work now, each with a name: a WARNING when it begins and when it works again, DEBUG in between.

    >>> troubles = Troubles()
    >>> troubles.failed("billing: a pull from broker-a", RocketcError("not reached"))
    >>> troubles.failed("billing: a pull from broker-a", RocketcError("not reached"))
    >>> len(troubles)
    1
    >>> troubles.works("billing: a pull from broker-a")
    >>> len(troubles)
    0
    """

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, what: str, error: Exception) -> None:
        """Something has failed, and will be tried again. A traceback is logged if the error is not one of rocketc."""
        failures = self._failures[what] = self._failures.get(what, 0) + 1
        _log.log(
            logging.WARNING if failures == 1 else logging.DEBUG,
            "%s failed; it is tried again: %s", what, error, exc_info=not isinstance(error, RocketcError),
        )  # fmt: skip

    def works(self, what: str) -> None:
        """Something has succeeded. Look at len() first where that is often."""
        failures = self._failures.pop(what, 0)
        if failures:
            _log.warning("%s works again; it failed %d times", what, failures)
