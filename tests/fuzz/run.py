"""`python -m fuzz.run TARGET [libFuzzer's options] [files or folders]`: the process that tools/fuzz.sh starts.

It needs atheris. The Python files of rocketc are instrumented when they are imported, the extensions when they are
built.
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
    logging.disable()  # damaged tables are logged
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
