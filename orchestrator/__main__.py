"""The `dpp2` command. A node starts without the rest of the command line, which takes longer to load than it does."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:2] == ["node"]:
        from node.__main__ import main as node

        sys.exit(node(sys.argv[2:]))
    from orchestrator.cli import main as commands

    commands()


if __name__ == "__main__":
    main()
