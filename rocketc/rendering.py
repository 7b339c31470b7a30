"""The hook for the HTML form of reports, scans and stores in a notebook.

Classes of all layers have `_repr_html_`, but the renderer in rocketc.report knows all of them and is in a higher layer.
So the package installs the renderer here when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable

_renderer: Callable[[object], str] | None = None


def install(renderer: Callable[[object], str]) -> None:
    """Set the function that returns the HTML of an object.

    >>> from rocketc.report.notebook import html
    >>> install(html)
    """
    global _renderer
    _renderer = renderer


def html_of(thing: object) -> str:
    """Return HTML for a store, a scan, a report, or the result of a read.

    Raises RuntimeError if no renderer is installed; `import rocketc` installs one.

    >>> import rocketc
    >>> "<table" in html_of(rocketc.decode(rocketc.encode("orders", b"hi")))
    True
    """
    if _renderer is None:
        raise RuntimeError("no HTML renderer is installed; import rocketc installs one")
    return _renderer(thing)


class HtmlRepr:
    """A base class for objects with an HTML form."""

    def _repr_html_(self) -> str:
        return html_of(self)
