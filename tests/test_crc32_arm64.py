"""The arm64 code of crc32.h, run by an emulator on other machines."""

import platform
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALIGNMENTS, LENGTHS = 16, 4097
SIZE = ALIGNMENTS + LENGTHS
PROGRAM = f"""
#include "rocketc/crc32.h"
#include <stdio.h>
int main(void)
{{
    static uint8_t bytes[{SIZE}];
    rc_crc32_fn crc32 = rc_crc32_way(RC_CRC32_ARM64);
    if (crc32 == NULL || rc_crc32_best() != RC_CRC32_ARM64)
        return 2;
    for (uint32_t i = 0; i < {SIZE}; i++)
        bytes[i] = (uint8_t)(i * 131 + (i >> 3));
    for (size_t at = 0; at < {ALIGNMENTS}; at++)
        for (size_t n = 0; n < {LENGTHS}; n++) {{
            uint32_t value = crc32((uint32_t)n, bytes + at, n);
            fwrite(&value, sizeof value, 1, stdout);
        }}
    return 0;
}}
"""


@pytest.mark.long
def test_the_arm64_code_agrees_with_zlib(tmp_path: Path) -> None:
    native = platform.machine() in ("aarch64", "arm64")
    compiler = shutil.which("cc" if native else "aarch64-linux-gnu-gcc")
    emulator = [] if native else [shutil.which("qemu-aarch64")]
    if compiler is None or None in emulator:
        pytest.skip("needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user")
    source, program = tmp_path / "arm.c", tmp_path / "arm"
    source.write_text(PROGRAM)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    static = [] if native else ["-static"]
    command = [compiler, "-std=c11", "-O2", *warnings, *static, f"-I{ROOT / 'include'}", "-o", program, source]
    subprocess.run(command, check=True)
    out = subprocess.run([*emulator, program], check=True, stdout=subprocess.PIPE).stdout

    data = bytes((i * 131 + (i >> 3)) & 0xFF for i in range(SIZE))
    meant = [zlib.crc32(data[at : at + n], n) for at in range(ALIGNMENTS) for n in range(LENGTHS)]
    assert list(struct.unpack(f"<{len(meant)}I", out)) == meant
