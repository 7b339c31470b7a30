"""Write tests/golden/sql92.jsonl: what RocketMQ's filter module answers to questions about SQL92 filters.

    tools/record_filters.py [--check]

Needs Java and Maven. The questions are those of tests/support/sql_corpus.py. A line has the answer of 5.3.3, the one of
4.9.7 if it is another one, and the properties if they are not PROPERTIES.
--check  compare with the file, write nothing
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from interop.filters import answers  # noqa: E402
from support.sql_corpus import PROPERTIES, RECORDED, chosen  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    questions = chosen()
    lines = []
    for (text, properties), new, old in zip(
        questions, answers("5.3.3", questions), answers("4.9.7", questions), strict=True
    ):
        entry: dict[str, Any] = {"sql": text, "5.3.3": new[0]}
        if properties != PROPERTIES:
            entry["properties"] = properties
        if old[0] != new[0]:
            entry["4.9.7"] = old[0]
        lines.append(json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n")
    if arguments.check:
        same = RECORDED.read_text(encoding="utf-8") == "".join(lines)
        print(f"{RECORDED.relative_to(ROOT)}: {'equal' if same else 'other answers'}")
        return 0 if same else 1
    RECORDED.write_text("".join(lines), encoding="utf-8")
    print(f"{RECORDED.relative_to(ROOT)}: {len(lines)} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
