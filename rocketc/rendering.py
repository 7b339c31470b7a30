"""How reports, scans and stores get their form in a notebook: a renderer from above is installed here.

Classes of every layer have `_repr_html_`, and what draws them knows them all. So the drawing lies above them, in
rocketc.report, and the package installs it when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable

_renderer: Callable[[object], str] | None = None


def install(renderer: Callable[[object], str]) -> None:
    """Make renderer(thing) the one that gives the HTML of a thing.

    >>> from rocketc.report.notebook import html
    >>> install(html)
    """
    global _renderer
    _renderer = renderer


def html_of(thing: object) -> str:
    """A small piece of HTML for a store, a scan, a report, or the result of a read.

    Raises RuntimeError before a renderer was installed, which `import rocketc` does.

    >>> import rocketc
    >>> "<table" in html_of(rocketc.decode(rocketc.encode("orders", b"hi")))
    True
    """
    if _renderer is None:
        raise RuntimeError("no renderer of HTML is installed; import rocketc does that")
    return _renderer(thing)


class HtmlRepr:
    """A base class for what has such a form."""

    def _repr_html_(self) -> str:
        return html_of(self)
