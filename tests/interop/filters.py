"""RocketMQ's filter module as a judge of SQL92 filters: java/Filters.java, run once for many questions."""

import base64
import subprocess
from collections.abc import Iterable

from interop.peer import ENVIRONMENT, OPTIONS, class_path, tool
from support.sql_corpus import Question, encoded


def answers(release: str, questions: Iterable[Question]) -> list[tuple[str, str]]:
    """Return the answer to each question: "true", "false", "null", "error" or "refused", and the error's message.

    Raises Unavailable if RocketMQ cannot be run here.
    """
    command = [tool("java"), *OPTIONS, "-cp", class_path(release), "Filters"]
    lines = "".join(f"{coded(text.encode())} {coded(encoded(properties))}\n" for text, properties in questions)
    run = subprocess.run(command, env=ENVIRONMENT, input=lines, capture_output=True, text=True, timeout=600, check=True)
    return [answer(line) for line in run.stdout.splitlines()]


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def answer(line: str) -> tuple[str, str]:
    what, kind, rest = line.split(" ")
    text = base64.b64decode(rest).decode()
    if what != "value":
        return what, text
    return ("null" if kind == "null" else text if kind == "Boolean" else f"{kind} {text}"), ""
