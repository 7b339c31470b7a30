"""python -m fuzz.run TARGET [libFuzzer's options] [files or folders]: what tools/fuzz.sh starts. Needs atheris.

Python files of rocketc are instrumented as they are imported; the extensions were when they were built.
"""

import logging
import sys
import tempfile
from pathlib import Path

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["rocketc"], enable_loader_override=False):
        from fuzz.targets import TARGETS
    logging.disable()  # damaged tables are told of there
    target = TARGETS[name]
    folder = Path(tempfile.mkdtemp(), "input")  # below TMPDIR, which tools/fuzz.sh removes

    def one(data: bytes) -> None:
        target(data, folder)

    options = [sys.argv[0], f"-max_len={target.largest}", *sys.argv[1:]]
    if (mutator := target.mutator) is None:
        atheris.Setup(options, one)
    else:

        def mutated(data: bytes, most: int, seed: int) -> bytes:
            return mutator(bytes(data), most, seed, lambda some, size: bytes(atheris.Mutate(some, size)))

        atheris.Setup(options, one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
