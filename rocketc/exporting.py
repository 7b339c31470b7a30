"""The hook for serving the metrics of a broker.

A broker serves its metrics if its settings say so, but rocketc.metrics is in a higher layer and reads the broker. So
the package installs the function here when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

Serve = Callable[[Any], AbstractAsyncContextManager["str | None"]]  # of a BrokerController; enters with the URL

_serve: Serve | None = None


def install(serve: Serve) -> None:
    """Set the function that serves the metrics of a broker while its context is entered.

    >>> from rocketc.metrics.http_endpoint import serving_metrics
    >>> install(serving_metrics)
    """
    global _serve
    _serve = serve


def serving(broker: Any) -> AbstractAsyncContextManager[str | None]:
    """Return the context in which the metrics of a broker are served. It enters with the URL, or None.

    Raises RuntimeError if no function is installed; `import rocketc` installs one.

    >>> import rocketc
    >>> with rocketc.Broker(metrics_exporter_type="PROM") as broker:
    ...     broker.metrics_port > 0
    True
    """
    if _serve is None:
        raise RuntimeError("nothing is installed that serves metrics; import rocketc installs it")
    return _serve(broker)
