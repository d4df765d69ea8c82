"""The command `anycore`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from anycore import __version__
from anycore.errors import AnycoreError


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status of `anycore` called with `arguments`, by default those of the process.

    An error of anycore's own becomes one line on standard error and status 1.
    """
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except AnycoreError as error:
        print(f"anycore: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="anycore", description="TPU embeddings on any core.")
    parser.add_argument("--version", action="version", version=f"anycore {__version__}")
    commands = parser.add_subparsers(title="commands", required=True)

    demo = commands.add_parser("demo", help="train a factorization machine on MovieLens-100k, downloaded once by pip")
    demo.add_argument("--synthetic", action="store_true", help="make up ratings instead of downloading real ones")
    demo.add_argument("--epochs", type=_integer(1), help="passes over the training ratings")
    demo.add_argument("--seed", type=_integer(0), default=0, help="of initial factors and training order (default 0)")
    demo.set_defaults(command=_demo)
    return parser


def _integer(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {lowest}, got {text!r}")
        return int(text)

    return integer


def _demo(options: argparse.Namespace) -> None:
    from anycore import demo

    epochs = {} if options.epochs is None else {"epochs": options.epochs}
    demo.run(**epochs, seed=options.seed, synthetic_ratings=options.synthetic)
