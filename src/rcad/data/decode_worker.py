"""The program of a decoding process: `python -m rcad.data.decode_worker`, jobs on stdin, answers on stdout."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from typing import Any

from rcad.data.decoding import serve


def main() -> None:
    """Serve jobs until stdin closes, which also happens when the parent dies."""
    # Ctrl-C reaches the whole group; the parent decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")

    def answer(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    serve(iter(sys.stdin.readline, ""), answer)


if __name__ == "__main__":
    main()
