"""Metrics as Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rocketc.metrics.measures import Histogram, Measure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n"})


def exposition(measures: Iterable[Measure]) -> str:
    """Return metrics as text. Metrics without samples are left out.

    >>> print(exposition([Measure("held", "gauge", "", "Held pulls", ("topic",)).add(3, "or\\"ders")]), end="")
    # HELP held Held pulls
    # TYPE held gauge
    held{topic="or\\"ders"} 3
    """
    return "".join(line + "\n" for one in measures if one.samples for line in _lines(one))


def _lines(one: Measure) -> Iterator[str]:
    yield f"# HELP {one.name} {one.help.translate(_HELP_ESCAPED)}"
    yield f"# TYPE {one.name} {one.kind}"
    for labels, value in one.samples:
        if not isinstance(value, Histogram):
            yield f"{one.name}{_labels(labels)} {value}"
            continue
        for bound, count in value.below:
            yield f"{one.name}_bucket{_labels({**labels, 'le': str(bound)})} {count}"
        yield f"{one.name}_bucket{_labels({**labels, 'le': '+Inf'})} {value.count}"
        yield f"{one.name}_sum{_labels(labels)} {value.sum}"
        yield f"{one.name}_count{_labels(labels)} {value.count}"


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
