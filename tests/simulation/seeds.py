"""How a simulation plays a seed, and its command line: the seeds, and what is broken in it on purpose."""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

Change = Callable[[], object]
Whole = Callable[[], Coroutine[Any, Any, tuple[list[str], object, dict[str, Any]]]]


def play_seed(root: Path, seed: int, whole: Whole, run: Callable[[Whole], Any]) -> dict[str, Any]:
    """Run one seed in an empty folder, and return what it found. The digest is the same for the same seed.

    whole  returns what was wrong, what else is the same in each run, and figures
    run    runs it on a virtual loop
    """
    shutil.rmtree(root, ignore_errors=True)
    began = time.process_time()
    wrong, told, figures = run(whole)
    digest = hashlib.sha256(repr((told, wrong)).encode()).hexdigest()[:16]
    gc.collect()
    seconds = round(time.process_time() - began, 2)
    return {"seed": seed, "wrong": wrong[:20], **figures, "digest": digest, "seconds": seconds}


def run_seeds(play: Callable[[Path, int], dict[str, Any]], mutants: Mapping[str, tuple[Change, str]]) -> None:
    """Play the seeds of the command line, and print what each found. With a mutant, end when it is found.

    mutants  what breaks the code, and words of what is then found, by name
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--mutant", default="")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.mutant:
        mutants[given.mutant][0]()
    for seed in given.seeds:
        found = play(given.folder / "cluster", seed)
        print(json.dumps(found), flush=True)
        if given.mutant and re.search(mutants[given.mutant][1], " ".join(found["wrong"])):
            break
