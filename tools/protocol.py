#!/usr/bin/env python3
"""The requests of the remoting protocol as a page: docs/protocol.md, from the table in rocketc/remoting/requests.py.

python tools/protocol.py            print the table
python tools/protocol.py --check    exit with 1 if the page does not contain this table
python tools/protocol.py --write    put the table into the page
"""

import argparse
import re
import sys
from pathlib import Path

from rocketc.remoting.requests import REQUESTS, Field, Request

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/protocol.md"
MARK = "<!-- made by tools/protocol.py -->"


def field_text(field: Field, *, short: bool) -> str:
    name = f"`{field.short}` {field.name}" if short else f"`{field.name}`"
    return f"{name} {field.kind.name}{'' if field.required else ', optional'}"


def row(request: Request) -> str:
    fields = "; ".join(field_text(field, short=request.short) for field in request.fields)
    answer = "; ".join(field_text(field, short=False) for field in request.answer)
    fields += f"{'; ' if fields else ''}body: {request.body}" if request.body else ""
    answer += f"{'; ' if answer else ''}body: {request.answer_body}" if request.answer_body else ""
    return f"| {request.code} | {request.name} | {fields} | {answer} |"


def table() -> str:
    """All requests, in the order of their codes."""
    rows = [row(REQUESTS[code]) for code in sorted(REQUESTS)]
    return "\n".join(["| code | request | fields | answer |", "|--:|---|---|---|", *rows]) + "\n"


def with_table(page: str) -> str:
    """The page with the table between its two marks."""
    return re.sub(f"{MARK}\n.*?{MARK}", f"{MARK}\n{table()}{MARK}", page, flags=re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if options.write:
        PAGE.write_text(with_table(page), encoding="utf-8")
    elif options.check:
        if with_table(page) != page:
            print("docs/protocol.md is older than the table of requests; run: python tools/protocol.py --write")
            return 1
    else:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
