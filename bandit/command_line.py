"""The `mixts` command: the package from a shell.

Exit codes: 0 if all went well, 1 if a file or folder could not be written or read, 2 if the command
was not understood, 130 if it was interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The words after `mixts`; by default those this process was started with.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except OSError as error:
        print(f"mixts {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"mixts {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mixts", description="Mixed-effect Thompson sampling with NumPyro."
    )
    parser.add_argument("--version", action="version", version=f"mixts {version('mixts')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="run a small bandit and plot its regret")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("out"),
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)
    return parser


# Each command imports what it runs, so that a fault in one does not stop the others.
def _demo(options: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(options.out)


if __name__ == "__main__":
    sys.exit(main())
