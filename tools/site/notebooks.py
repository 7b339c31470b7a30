"""Runs notebooks as plain Python programs, and converts them to pages of the site.

    python tools/site/notebooks.py examples/notebooks/*.ipynb           # run them, and store their outputs
    python tools/site/notebooks.py --check examples/notebooks/*.ipynb   # run them, and compare; exit code 1: different

The outputs of a cell are those of Jupyter: printed text, the value of its last line (as HTML if possible), and the
figures of matplotlib. This does not need a kernel, only the packages that the cells import. --check compares only that
figures exist, and it does not compare HTML.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import difflib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def run(notebook: dict[str, Any], folder: Path) -> list[list[Output]]:
    """Run the code cells one after the other with `folder` as current directory, and return their outputs."""
    os.environ["MPLBACKEND"] = "agg"
    os.chdir(folder)
    space: dict[str, Any] = {"__name__": "__main__"}
    return [cell_outputs("".join(cell["source"]), space) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def cell_outputs(source: str, space: dict[str, Any]) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "<cell>", "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if shown := getattr(value, "_repr_html_", lambda: None)():
            data["text/html"] = lines(shown)
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs + [{"output_type": "display_data", "metadata": {}, "data": {"image/png": png}} for png in figures()]


def figures() -> list[str]:
    """Return the open figures of matplotlib as PNG in base64, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})
        found.append(base64.b64encode(file.getvalue()).decode())
    pyplot.close("all")
    return found


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def compared(outputs: list[Output]) -> list[str]:
    """Return the lines of the outputs that must be the same in each run."""
    found = []
    for output in outputs:
        data = output.get("data", {})
        found += ["a figure"] if "image/png" in data else "".join(output.get("text") or data["text/plain"]).splitlines()
    return found


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    differ = False
    for path in [Path(name).resolve() for name in arguments if name != "--check"]:  # cells change the current folder
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, made) in enumerate(zip(cells, run(notebook, path.parent), strict=True), 1):
            kept, now = compared(cell["outputs"]), compared(made)
            if check and kept != now:
                differ = True
                print(f"{path.name}: the output of cell {number} is not the stored one")
                print("\n".join(difflib.unified_diff(kept, now, "kept", "now", lineterm="", n=1)))
            cell["outputs"], cell["execution_count"] = made, number
            for output in made:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = number
        if not check:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if differ else 0


# ------------------------------------------------------------------------------------------ pages of the site


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def shown(output: Output) -> str:
    if "text" in output:
        return fenced("".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        return f'<img alt="the figure of the cell" class="figure" src="data:image/png;base64,{data["image/png"]}">'
    if "text/html" in data:
        inside = re.sub(r"\s*\n\s*|<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
        table = re.sub(r' border="1"| class="dataframe"| style="text-align: right;"', "", inside)
        return f'<div class="output">{table}</div>'
    return fenced("".join(data["text/plain"]))


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
