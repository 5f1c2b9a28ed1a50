"""How far to move embeddings: a small BERT on made-up sentences with few labels, over alpha, with the two controls.

    python benchmarks/embedding_alpha.py --out results/embeddings

Writes alpha.json (every run) and alpha.md (the table). Six seeds take some minutes on one core; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from common import number, signed, table, write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rcad import Method, methods, suggest_alpha
from rcad.runs.files import write_text

VOCABULARY, LENGTH, WIDTH = 60, 12, 32
LABELS, TESTS, EPOCHS, BATCH, RATE, LAM = 200, 1000, 40, 32, 2e-3, 0.3
METHODS = {
    "ERM": methods.erm(),
    **{f"RCAD, alpha {alpha:g}": methods.rcad(alpha, LAM) for alpha in (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)},
    **{f"random direction, alpha {alpha:g}": methods.rcad_random(alpha, LAM) for alpha in (1.0, 4.0)},
    "no step (`confidence_penalty`)": methods.confidence_penalty(LAM),
}
Sentences = tuple[Tensor, Tensor, Tensor]


def bert(seed: int) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    size = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 2 * WIDTH}
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "num_labels": 2, "initializer_range": 0.1}
    return BertForSequenceClassification(BertConfig(**size, **shape))  # type: ignore[no-any-return]


def sentences(count: int, generator: torch.Generator) -> Sentences:
    """Ids, mask and labels; a label says whether the high half of the vocabulary is in the majority."""
    ids = torch.randint(1, VOCABULARY, (count, LENGTH), generator=generator)
    lengths = torch.randint(5, LENGTH + 1, (count, 1), generator=generator)
    mask = torch.arange(LENGTH) < lengths
    high = ((ids >= VOCABULARY // 2) & mask).sum(1)
    return torch.where(mask, ids, 0), mask.long(), (2 * high > lengths[:, 0]).long()


@torch.no_grad()
def distances(model: Any, data: Sentences) -> dict[str, float]:
    """What a user could measure before training, on the embeddings of the training sentences."""
    ids, mask, y = data
    embedded = model.get_input_embeddings()(ids) * mask[..., None]
    norms = torch.linalg.vector_norm(embedded.flatten(1), dim=1)
    return {"measured_alpha": suggest_alpha(embedded, y), "median_norm": norms.median().item()}


def train(method: Method, seed: int) -> dict[str, float]:
    """One run: test accuracy in percent and NLL. Runs of one seed share sentences, first weights and order."""
    generator = torch.Generator().manual_seed(seed)
    data, (ids, mask, y) = sentences(LABELS, generator), sentences(TESTS, generator)
    model: Any = bert(seed).train()
    found = {"seed": seed, **distances(model, data)}
    criterion = method.criterion()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    for _ in range(EPOCHS):
        for index in torch.randperm(LABELS, generator=generator).split(BATCH):
            some = [part[index] for part in data]
            inputs = {"inputs_embeds": model.get_input_embeddings()(some[0]), "attention_mask": some[1]}
            optimizer.zero_grad()
            criterion.backward(model, inputs, some[2])
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    with torch.no_grad():
        logits = model.eval()(ids, attention_mask=mask).logits
    hits = (logits.argmax(1) == y).float().mean().item()
    return found | {"accuracy": round(100 * hits, 2), "nll": round(cross_entropy(logits, y).item(), 5)}


def shown(record: dict[str, Any]) -> str:
    """The table: accuracy as a paired difference to ERM's, with its standard error."""
    runs = record["runs"]
    erm = [run["accuracy"] for run in runs["ERM"]]
    measured = statistics.fmean(run["measured_alpha"] for run in runs["ERM"])
    norm = statistics.fmean(run["median_norm"] for run in runs["ERM"])
    lines = []
    for name, own in runs.items():
        gains = [run["accuracy"] - base for run, base in zip(own, erm, strict=True)]
        error = statistics.stdev(gains) / len(gains) ** 0.5
        accuracy = f"{signed(statistics.fmean(gains), 1)} ± {error:.1f}"
        first = f"{name} ({statistics.fmean(erm):.1f}%)" if name == "ERM" else name
        lines.append([first, "" if name == "ERM" else accuracy, number(statistics.fmean(run["nll"] for run in own))])
    settings = record["settings"]
    head = f"small BERT, made-up sentences, {settings['labels']} labels, lam {settings['lam']}, {len(erm)} seeds"
    return (
        f"{table([head, 'accuracy against ERM', 'NLL'], lines)}\n\n"
        f"± one standard error of the paired difference. `suggest_alpha` says {measured:.2f} here; the median norm\n"
        f"of a sequence of embeddings is {norm:.1f}."
    )


def page(record: dict[str, Any]) -> str:
    """Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    return (
        "# How far to move embeddings\n\nGenerated by `python benchmarks/embedding_alpha.py --out results/embeddings` "
        f"in {record['seconds']} s; every run is in `alpha.json` ({settings}; {versions}, {record['date']}). A toy: "
        f"nothing was tuned, and the test sentences were read once a run.\n\n{shown(record)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of alpha.json and alpha.md")
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    start, runs = time.perf_counter(), {}
    for name, method in METHODS.items():
        runs[name] = [train(method, seed) for seed in range(options.seeds)]
        print(name, [run["accuracy"] for run in runs[name]], flush=True)
    import transformers

    record = {
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(time.perf_counter() - start),
        "settings": {
            "labels": LABELS, "test sentences": TESTS, "lam": LAM, "epochs": EPOCHS, "batch": BATCH,
            "optimizer": f"AdamW at {RATE}, clipped at 1", "layers": 2, "width": WIDTH, "vocabulary": VOCABULARY,
            "longest sentence": LENGTH,
        },
        "runs": runs,
    }  # fmt: skip
    write(options.out / "alpha.json", record)
    write_text(options.out / "alpha.md", page(record))
    print(shown(record))


if __name__ == "__main__":
    main()
