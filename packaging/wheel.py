"""Makes a wheel that holds the program, and its parts list if there is one: packaging/wheel.py PROGRAM DIR [SBOM]."""

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

program, folder, *sbom = (Path(name) for name in sys.argv[1:])
content = program.read_bytes()
version = subprocess.run([program.resolve(), "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
# A program of a release is linked statically for x86-64 (62), so it runs under both C libraries. Any other runs where it was built:
# its third kind of program header names what loads it.
AT, SIZE, COUNT = (int.from_bytes(content[at : at + size], "little") for at, size in ((32, 8), (54, 2), (56, 2)))
LOADED = any(content[AT + SIZE * n] == 3 for n in range(COUNT)) if content[:4] == b"\x7fELF" else True
STATIC = not LOADED and content[18] == 62
HERE = sysconfig.get_platform().replace("-", "_").replace(".", "_")
TAGS = ["manylinux2014_x86_64", "musllinux_1_1_x86_64"] if STATIC else [HERE]
INFO = f"lastword-{version}.dist-info"
root = Path(__file__).parents[1]
described = (root / "packaging/about.md").read_text()
METADATA = f"""Metadata-Version: 2.4
Name: lastword
Version: {version}
Summary: Message broker for teams of AI agents in which every conversation ends
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{described}"""
WHEEL = "\n".join(["Wheel-Version: 1.0", "Generator: lastword", "Root-Is-Purelib: false"])
WHEEL += "".join(f"\nTag: py3-none-{tag}" for tag in TAGS) + "\n"
files = {
    f"lastword-{version}.data/scripts/lastword": content,
    f"{INFO}/METADATA": METADATA.encode(),
    f"{INFO}/WHEEL": WHEEL.encode(),
    f"{INFO}/licenses/LICENSE": (root / "LICENSE").read_bytes(),
} | {f"{INFO}/sboms/sbom.cdx.json": file.read_bytes() for file in sbom}


def record(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


lines = "".join(record(name, content) for name, content in files.items())
files[f"{INFO}/RECORD"] = f"{lines}{INFO}/RECORD,,\n".encode()
when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]
with zipfile.ZipFile(folder / f"lastword-{version}-py3-none-{'.'.join(TAGS)}.whl", "w") as wheel:
    for name, held in files.items():
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = (0o100755 if name.endswith("scripts/lastword") else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, held, compresslevel=1 if os.environ.get("FAST") else 9)
