"""The `mixts` command: the package from a shell.

Exit codes: 0 if all went well, 1 if a file or folder could not be written or read, a cluster not be
reached or a benchmark not be met, 2 if the command was not understood, 130 if it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The words after `mixts`; by default those this process was started with.
    """
    options = _parser().parse_args(arguments)
    try:
        # Imported here, so that help is quick and a fault in one command does not stop the others.
        module, function = options.run
        getattr(import_module(module, __package__), function)(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, `head` say, has ended; discard what is still in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"mixts {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"mixts {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser whose error message is one line."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to get help, and exit."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mixts", description="Mixed-effect Thompson sampling with NumPyro.")
    parser.add_argument("--version", action="version", version=f"mixts {version('mixts')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    text = "recommend movies that share genres, with pictures"
    demo = commands.add_parser("demo", help=text, description=text)
    demo.set_defaults(run=(".demo", "run_demo"))

    text = "condition every backend on the same synthetic data and tabulate their errors"
    compare = commands.add_parser("compare", help="compare posterior backends", description=text)
    compare.set_defaults(run=(".compare", "run_compare"))
    families = ("gaussian", "bernoulli", "poisson", "probit")
    families += ("negative-binomial", "student", "stars")
    text = "reward family (default: %(default)s)"
    compare.add_argument("--rewards", choices=families, default="gaussian", help=text)
    for name, value, what in (
        ("actions", 20, "number of actions"),
        ("effects", 3, "number of effects they share"),
        ("dim", 2, "length of a context"),
        ("observations", 200, "number of observed rewards"),
    ):
        text = f"{what} (default: %(default)s)"
        compare.add_argument(f"--{name}", type=_count, default=value, metavar="N", help=text)

    text = "learn from a table of items and a log what items and their effects are worth"
    fitted = commands.add_parser("fit", help="fit a hierarchy to two CSV files", description=text)
    fitted.set_defaults(run=(".fit", "run_fit"))
    fitted.add_argument("items", type=Path, metavar="ITEMS", help="CSV file: a row for each item")
    fitted.add_argument("log", type=Path, metavar="LOG", help="CSV file: a row for each reward")
    for name, what in (("action", "labels of the items"), ("reward", "rewards in the log")):
        fitted.add_argument(f"--{name}", required=True, metavar="COLUMN", help=f"column of {what}")
    for name, what in (
        ("crossed", "columns of labels; several in a cell are separated by |"),
        ("nested", "columns of a tree, top to bottom"),
        ("numeric", "columns of numbers"),
    ):
        fitted.add_argument(f"--{name}", nargs="+", metavar="COLUMN", help=what)
    text = "formula of what a visitor's context is made of, in columns of the log"
    fitted.add_argument("--contexts", metavar="FORMULA", help=text)
    text = "column that says how many rewards a row of the log stands for"
    fitted.add_argument("--exposure", metavar="COLUMN", help=text)
    text = "reward family (default: %(default)s)"
    families = ("gaussian", "bernoulli", "poisson")
    fitted.add_argument("--family", choices=families, default="gaussian", help=text)
    text = "what a missing cell means (default: %(default)s)"
    meanings = ("error", "unknown", "new")
    fitted.add_argument("--missing", choices=meanings, default="error", help=text)
    text = "learn scales and noise by their posterior or at their maximum (default: %(default)s)"
    ways = ("posterior", "maximum")
    fitted.add_argument("--numbers", choices=ways, default="posterior", help=text)

    text = "play the paper's experiments again; a call that was stopped continues where it was"
    again = commands.add_parser("reproduce", help="play the paper's figures", description=text)
    again.set_defaults(run=("..experiments.command", "run_reproduce"))
    again.add_argument("figures", nargs="*", metavar="FIGURE", help="names of figures, or: all")
    again.add_argument("--list", action="store_true", help="list the figures and exit")
    played = partial(_count, most=2**31 - 1)  # counted in 32 bits
    for name, what in (
        ("runs", "runs of each policy (default: 50)"),
        ("horizon", "rounds of a run (default: 5000)"),
    ):
        again.add_argument(f"--{name}", type=played, metavar="N", help=what)
    again.add_argument("--quick", action="store_true", help="4 runs of 300 rounds, for a look")
    text = (
        "MovieLens ratings.dat or ratings.csv, or its folder (default: the small data set in mixts)"
    )
    again.add_argument("--ratings", type=Path, metavar="PATH", help=text)
    text = "have the workers of this Dask scheduler play (default: this machine)"
    again.add_argument("--scheduler", metavar="ADDRESS", help=text)

    text = "measure speed beside other packages, and print ratios with their limits"
    bench = commands.add_parser("bench", help="measure speed", description=text)
    bench.set_defaults(run=(".compare", "run_bench"))
    text = "agent, simulate, ... (default: all)"
    bench.add_argument("benchmarks", nargs="*", metavar="NAME", help=text)

    text = "seed of all random numbers (default: %(default)s)"
    for command in (compare, fitted, again):
        command.add_argument("--seed", type=_seed, default=0, metavar="N", help=text)
    text = "folder for the results (default: %(default)s)"
    for command in (demo, compare, fitted, again):
        command.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help=text)
    again.set_defaults(out=Path("out") / "reproduce")
    for command in (demo, compare, fitted, again, bench):
        command.set_defaults(error=command.error)
    return parser


def _count(text: str, most: int | None = None) -> int:
    """A whole number of at least one, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got '{text}'; expected a whole number of at least 1")
    if most is not None and int(text) > most:
        raise argparse.ArgumentTypeError(f"got '{text}'; expected at most {most}")
    return int(text)


def _seed(text: str) -> int:
    """A whole number that fits 32 bits, for argparse."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"got '{text}'; expected a whole number from 0 to {2**32 - 1}"
        )
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
