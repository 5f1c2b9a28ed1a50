"""`python tests/support/run_examples.py OUT NAME ...`: examples one after the other in one process, which imports once.

They run with fewer seeds and epochs than they stand with, where those are many. What each prints goes to OUT/NAME.txt;
a complaint on stderr is the whole process's.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORTER = {
    "own_loop": ("LABELS, SEEDS, EPOCHS, LAM = 100, 8, 100, 0.5", "LABELS, SEEDS, EPOCHS, LAM = 100, 3, 40, 0.5"),
    "captured_loop": ("EPOCHS, BATCH, ALPHA, LAM, CLIP, DECAY = 40,", "EPOCHS, BATCH, ALPHA, LAM, CLIP, DECAY = 25,"),
    "regression": ("SEEDS, EPOCHS, ALPHA, LAM = 5, 40,", "SEEDS, EPOCHS, ALPHA, LAM = 3, 20,"),
    "compose": ("EPOCHS, CLASSES = 20,", "EPOCHS, CLASSES = 8,"),
    "skorch_grid": ('"max_epochs": 30', '"max_epochs": 12'),
    "lightning_trainer": ('0.5)", 100, 60', '0.5)", 100, 40'),
    "lightning_fabric": ("100, 60, 2", "100, 40, 2"),
    "accelerate_loop": ("100, 60, 0.5", "100, 40, 0.5"),
    "huggingface_text": ('"num_train_epochs": 15', '"num_train_epochs": 10'),
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        print(f"{name}: ", end="", flush=True)
        path = EXAMPLES / f"{name}.py"
        long, short = SHORTER.get(name, ("", ""))
        text = path.read_text(encoding="utf-8")
        assert long in text, f"{name} no longer says {long}"
        program = compile(text.replace(long, short) if long else text, str(path), "exec")
        with (folder / f"{name}.txt").open("w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
            exec(program, {"__name__": "__main__", "__file__": str(path)})
        print("ran", flush=True)
