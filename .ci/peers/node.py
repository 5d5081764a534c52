"""The programs of the npm packages in package.json, run with the Node that comes with them."""

import shutil
import subprocess

from broker import ROOT, surroundings

MODULES = ROOT / "target" / "node" / "node_modules"
SECONDS_MAX = 360


def run(program, *arguments):
    """Runs one to its end; gives its exit code, and what it said on both streams."""
    return node(MODULES / ".bin" / program, *arguments)


def node(script, *arguments):
    """Runs a script to its end, like run."""
    own = MODULES / "node" / "bin" / "node"
    command = [str(own) if own.exists() else shutil.which("node"), script, *arguments]
    done = subprocess.run(
        command, env=surroundings(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    return done.returncode, done.stdout, done.stderr
