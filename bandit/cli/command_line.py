"""The `mixts` command: the package from a shell.

Exit codes: 0 if all went well, 1 if a file or folder could not be written or read, a cluster not be
reached or a benchmark not be met, 2 if the command was not understood, 130 if it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
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
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, `head` say, has left; what is still in the buffer goes nowhere.
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
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mixts", description="Mixed-effect Thompson sampling with NumPyro.")
    parser.add_argument("--version", action="version", version=f"mixts {version('mixts')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="recommend movies that share genres, with pictures")
    demo.set_defaults(run=_demo)

    text = "condition every backend on the same synthetic data and tabulate how far each is off"
    compare = commands.add_parser("compare", help="compare posterior backends", description=text)
    compare.add_argument(
        "--rewards",
        choices=("gaussian", "bernoulli", "poisson"),
        default="gaussian",
        help="reward family (default: %(default)s)",
    )
    for name, value, what in (
        ("actions", 20, "how many actions"),
        ("effects", 3, "how many effects they share"),
        ("dim", 2, "length of a context"),
        ("observations", 200, "how many rewards were seen"),
    ):
        compare.add_argument(
            f"--{name}",
            type=_count,
            default=value,
            metavar="N",
            help=f"{what} (default: %(default)s)",
        )
    compare.set_defaults(run=_compare)

    text = "play the paper's experiments again; a call that was stopped goes on where it was"
    again = commands.add_parser("reproduce", help="play the paper's figures", description=text)
    again.add_argument("figures", nargs="*", metavar="FIGURE", help="names of figures, or: all")
    again.add_argument("--list", action="store_true", help="list the figures and leave")
    again.add_argument(
        "--runs", type=_played, metavar="N", help="runs of each policy (default: 50)"
    )
    again.add_argument(
        "--horizon", type=_played, metavar="N", help="rounds of a run (default: 5000)"
    )
    again.add_argument("--quick", action="store_true", help="4 runs of 300 rounds, for a look")
    again.add_argument(
        "--ratings",
        type=Path,
        metavar="PATH",
        help="MovieLens ratings.dat or ratings.csv, or its folder (default: the small data set in mixts)",
    )
    again.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="have the workers of this Dask scheduler play (default: this machine)",
    )
    again.set_defaults(run=_reproduce)

    text = (
        "measure speed beside other ways to do the same, and print ratios against what they may be"
    )
    bench = commands.add_parser("bench", help="measure speed", description=text)
    bench.add_argument(
        "benchmarks", nargs="*", metavar="NAME", help="agent, simulate, ... (default: all)"
    )
    bench.set_defaults(run=_bench, error=bench.error)

    for command in (compare, again):
        command.add_argument(
            "--seed",
            type=_seed,
            default=0,
            metavar="N",
            help="source of chance (default: %(default)s)",
        )
    for command in (demo, compare, again):
        command.add_argument(
            "--out",
            type=Path,
            default=Path("out"),
            metavar="DIR",
            help="folder for the results (default: %(default)s)",
        )
        command.set_defaults(error=command.error)
    again.set_defaults(out=Path("out") / "reproduce")
    return parser


def _count(text: str) -> int:
    """A whole number of at least one, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got '{text}'; expected a whole number of at least 1")
    return int(text)


def _played(text: str) -> int:
    """A number of runs or rounds, which are counted in 32 bits, for argparse."""
    if _count(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"got '{text}'; expected at most {2**31 - 1}")
    return int(text)


def _seed(text: str) -> int:
    """A whole number that fits 32 bits, for argparse."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"got '{text}'; expected a whole number from 0 to {2**32 - 1}"
        )
    return int(text)


# Each command imports what it runs, so that a fault in one does not stop the others.
def _demo(options: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(options.out)


def _compare(options: argparse.Namespace) -> None:
    from .compare import MOST_OBSERVATIONS, MOST_UNKNOWNS, run_compare

    actions, effects, dim = options.actions, options.effects, options.dim
    unknowns = (actions + effects) * dim
    if unknowns > MOST_UNKNOWNS:
        options.error(
            f"({actions:,} actions + {effects:,} effects) x {dim:,} = {unknowns:,} unknown numbers; "
            f"expected at most {MOST_UNKNOWNS:,}, whose covariance takes part in the comparison"
        )
    if options.observations > MOST_OBSERVATIONS:
        options.error(
            f"{options.observations:,} observations; expected at most {MOST_OBSERVATIONS:,}"
        )
    sizes = {"actions": actions, "effects": effects, "dim": dim}
    run_compare(options.rewards, options.observations, options.seed, options.out, **sizes)


def _reproduce(options: argparse.Namespace) -> None:
    from ..experiments.command import run_reproduce

    run_reproduce(options)


def _bench(options: argparse.Namespace) -> None:
    from .bench import run_bench

    run_bench(options)


if __name__ == "__main__":
    sys.exit(main())
