"""Writes the golden files anew: `python -m tests.golden.update`. Look at the difference before you commit it.

A changed URN means that the engine deletes the old object and makes a new one: it needs an alias.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.golden import GOLDEN, STACKS, golden_manifests, golden_urns, write


def main() -> int:
    for stack in STACKS:
        changed = write(GOLDEN / stack / "manifests", golden_manifests(stack))
        with tempfile.TemporaryDirectory() as folder:
            changed += write(GOLDEN / stack / "engine", {"urns.txt": golden_urns(stack, Path(folder))})
        print(f"{stack}: {len(changed)} changed{': ' + ', '.join(changed) if changed else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
