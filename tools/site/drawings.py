"""Converts drawings of lines and boxes to pictures.

In docs/ a drawing is text, so that it can be read anywhere and compared with the code (tests/test_format_page.py). The
site shows the same drawing as SVG: each character has its place on a grid, and lines are drawn. In a drawing of bytes,
a byte is four characters wide. Fields have the color of their kind, and show their meaning under the mouse pointer.
Dumps have the same colors.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator

WIDE, HIGH, BYTE = 8.0, 17.0, 4  # pixels per character; characters per byte
# Where the lines of a character go to: up, down, left, right.
LINES = {
    "│": "ud",
    "─": "lr",
    "┌": "dr",
    "┐": "dl",
    "└": "ur",
    "┘": "ul",
    "├": "udr",
    "┤": "udl",
    "┬": "dlr",
    "┴": "ulr",
    "┼": "udlr",
}
KINDS = {
    "size": r"size|.*[lL]ength|.*Size|.*Count|count|queues|reconsumeTimes|TL|PL|MS|BS",
    "place": r".*[oO]ffset|queueId|queue(Begins|Ends)|log(Begin|End)|previous|slot",
    "time": r".*Timestamp|timeDiff|ms in the month",
    "check": r"magic|bodyCRC|mark|.*[hH]ash|tagsCode|(ten )?digits|__CRC32#|name|0[12]|separator|class loader",
    "host": r".*Host|address|port|pid",
    "text": r"body|topic|properties|bit map|city",
}
SAID = {
    "size": "lengths, counts",
    "place": "places",
    "time": "times",
    "check": "checks",
    "host": "hosts",
    "text": "content",
}
LEGEND = '<p class="drawing">' + " ".join(f'<b class="{kind}">■</b> {said}' for kind, said in SAID.items()) + "</p>"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def drawn(markdown: str) -> str:
    """Return the Markdown of a page with its drawings and dumps as pictures."""
    meanings = fields(markdown)
    legend = LEGEND  # printed once, after the first drawing of bytes

    def one(found: re.Match[str]) -> str:
        nonlocal legend
        language, text = found.groups()
        if language:
            return found[0]
        if "┌" in text:
            shown = picture(text, meanings)
            if of_bytes(text):
                shown, legend = shown + legend, ""
            return shown
        return dump(text) if re.match(r"[\w-]+/[\w/]+\n\n\w{6}  ", text) else found[0]

    return BLOCK.sub(one, markdown)


def fields(markdown: str) -> dict[str, str]:
    """Return name -> meaning, from the tables of fields."""
    rows = re.findall(r"^\| \d* ?\| `(\w+)` \| [^|]* \| (.*) \|$", markdown, re.M)
    return {
        name: re.sub(r"\[(.*?)\]\(.*?\)|[`*]", r"\1", meaning).replace("\\|", "|") for name, meaning in rows if meaning
    }


def kind_of(name: str) -> str:
    bare = name.split(":")[0].strip(" …").replace("\u202f", " ")
    return next((kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, bare)), "other")


def of_bytes(text: str) -> bool:
    return re.search(r"^ {2}[ \d]{2}\d │", text, re.M) is not None


def picture(text: str, meanings: dict[str, str]) -> str:
    lines = text.rstrip("\n").splitlines()
    bytes_drawn = of_bytes(text)
    left = 6 if bytes_drawn else 0  # a drawing of bytes has the position of each row before it
    width, height = max(map(len, lines)) * WIDE + 2, len(lines) * HIGH + 2
    parts = [*boxes(lines, left, meanings)] if bytes_drawn else []
    parts.append(f'<path d="{strokes(lines)}"/>')
    for row, line in enumerate(lines):
        for found in re.finditer(r"(?:(?! {2})[^│─┌┐└┘├┤┬┴┼])+", line):
            word = found[0].strip()
            if word:
                at = found.start() + len(found[0]) - len(found[0].lstrip())
                mark = ' class="at"' if bytes_drawn and at < left and word.isdigit() else ""
                parts.append(
                    f'<text x="{at * WIDE + 1:g}" y="{row * HIGH + 13:g}" textLength="{len(word) * WIDE:g}"{mark}>'
                    f"{html.escape(word)}</text>"
                )
    title = "The bytes of a structure" if bytes_drawn else "A drawing"
    return (
        f'<div class="drawing"><svg role="img" aria-label="{title}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" style="min-width: {width * 0.75:g}px">{"".join(parts)}</svg></div>'
    )


def strokes(lines: list[str]) -> str:
    """Return a path over all lines, from the middle of each character to its borders."""
    out = []
    middle = WIDE / 2 + 1, HIGH / 2 + 1
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            x, y = column * WIDE + middle[0], row * HIGH + middle[1]
            for way in LINES.get(character, ""):
                to = {"u": f"v{-HIGH / 2:g}", "d": f"v{HIGH / 2:g}", "l": f"h{-WIDE / 2:g}", "r": f"h{WIDE / 2:g}"}[way]
                out.append(f"M{x:g} {y:g}{to}")
    return "".join(out)


def boxes(lines: list[str], left: int, meanings: dict[str, str]) -> Iterator[str]:
    """Return the background of each field in a drawing of bytes: its color, a mark per byte, and its meaning."""
    legend = dict(re.findall(r"\b([A-Z]{2})  (\w+)", "\n".join(line for line in lines if "│" not in line)))
    for row, line in enumerate(lines):
        label = line[:left].strip()
        walls = [n for n, character in enumerate(line) if character == "│"]
        for begin, end in itertools.pairwise(walls):
            text = line[begin + 1 : end].strip()
            name = legend.get(text, text.split(":")[0].removesuffix(" …"))
            x, y = begin * WIDE + WIDE / 2 + 1, (row - 0.5) * HIGH + 1
            wide = (end - begin) * WIDE
            size = (end - begin) // BYTE
            said = name
            if label and not text.endswith("…"):
                first = int(label) + (begin - left) // BYTE
                said += f": byte {first} to {first + size - 1}" if size > 1 else f": byte {first}"
                said += f", {TYPES[size]}" if size in TYPES and name in meanings else ""
            said += f": {meanings[name]}" if name in meanings else ""
            ticks = "".join(
                f"M{x + n * BYTE * WIDE:g} {y + 2 * HIGH:g}v-4" for n in range(1, size) if not text.endswith("…")
            )
            yield (
                f'<g class="{kind_of(name)}"><title>{html.escape(said)}</title>'
                f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{2 * HIGH:g}"/>'
                f'<path class="ticks" d="{ticks}"/></g>'
            )


def dump(text: str) -> str:
    """Return a dump of bytes in the colors of their fields."""
    out, kind = [], "other"
    for line in text.rstrip("\n").splitlines():
        columns = re.fullmatch(r"(\w{6})  (.{47})  (.{17}\S*) ?(.*)", f"{line:75}")
        if columns is None:
            out.append(html.escape(line))
            continue
        at, data, name, value = columns.groups()
        kind = kind_of(name.strip()) if name.strip() else kind
        shown = f'<b class="{kind}">{data.rstrip()}</b>{" " * (len(data) - len(data.rstrip()))}'
        out.append(f"<i>{at}</i>  {shown}  {html.escape(f'{name} {value}'.rstrip())}")
    body = "\n".join(out).replace("\n\n", "\n&#8203;\n")  # an empty line would end the HTML block
    return f'<div class="highlight dump"><pre><code>{body}</code></pre></div>'
