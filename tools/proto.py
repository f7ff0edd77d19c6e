"""Generate the wire code from proto/, or check that what is committed is what the pinned generator makes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    sources = [str(path) for path in sorted((ROOT / "proto").rglob("*.proto"))]
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{ROOT / 'proto'}", *outputs, *sources]):
        sys.exit("protoc failed")


def main() -> None:
    if "--check" not in sys.argv:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*_pb2*")}
    stale = [str(name) for name, content in made.items() if (ROOT / name).read_bytes() != content]
    if stale:
        sys.exit(f"not what proto/ generates: {', '.join(stale)} (run `make proto`)")


if __name__ == "__main__":
    main()
