"""What the engine costs over a hand-written loop: both train the same model on the same batches, turn by turn.

    python benchmarks/engine_overhead.py [--model resnet18] [--batch 32] [--steps 20] [--rounds 7]

Prints the median time per step of each and their ratio, measured in one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rcad.data.dataset import Dataset, Split
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.train.loop import Trainer
from rcad.train.task import Problem, method_of, model_of, prepare


def problem_of(batch: int, steps: int, model: str, epochs: int) -> tuple[RunConfig, Problem]:
    draw = np.random.default_rng(0)
    count = batch * steps
    train = Split(draw.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), np.arange(count) % 100)
    data = Dataset("noise", "classification", train, train.take(np.arange(100)), tuple(map(str, range(100))))
    config = RunConfig(
        data=DataConfig(name="noise", validation=0.0),
        model=ModelConfig(name=model),
        method=(("erm", ()),),
        optim=OptimConfig(lr=0.1, weight_decay=5e-4, clip=1.0),
        train=TrainConfig(epochs=epochs, batch_size=batch, selection="last"),
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return config, prepare(config, data, device)


def engine(config: RunConfig, problem: Problem, steps: int) -> Callable[[], None]:
    trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem))

    def epoch() -> None:
        count = 0

        def pause() -> bool:
            nonlocal count
            count += 1
            return count == steps

        trainer.fit(pause)

    return epoch


def by_hand(config: RunConfig, problem: Problem, steps: int) -> Callable[[], None]:
    net = model_of(config, problem).to(problem.device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    x, y = problem.train
    net.train()

    def epoch() -> None:
        for index in torch.randperm(len(y), device=problem.device).split(config.train.batch_size)[:steps]:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(x[index].float() / 255), y[index])
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()

    return epoch


def seconds(job: Callable[[], None]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    job()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    # One step more than is run, so that no epoch ends inside the measurement.
    config, problem = problem_of(options.batch, (options.steps + 1) * (options.rounds + 2), options.model, 10)
    jobs = {"engine": engine(config, problem, options.steps), "by hand": by_hand(config, problem, options.steps)}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.rounds + 1):
        for name, job in jobs.items():
            times[name].append(seconds(job) / options.steps)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    pairs = [a / b for a, b in zip(times["engine"][1:], times["by hand"][1:], strict=True)]
    result = {
        "model": options.model,
        "batch": options.batch,
        "device": str(problem.device),
        "ms_per_step": {name: round(1e3 * value, 3) for name, value in medians.items()},
        "ratio": round(statistics.median(pairs), 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
