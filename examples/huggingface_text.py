"""RCAD in Hugging Face's Trainer: a small BERT on made-up sentences; the embeddings move, padding stays.
Built in place and trained from nothing, so that no file is downloaded; the change is one class and one argument."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import tempfile

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import rcad
from rcad.integrations.huggingface import RCADTrainer

transformers.logging.set_verbosity_error()
VOCABULARY, LENGTH, LAM = 60, 12, 0.3


def sentences(count, generator):
    """Random tokens of random length; the label says whether the high half of the vocabulary is in the majority."""
    rows = []
    for _ in range(count):
        length = int(torch.randint(5, LENGTH + 1, (), generator=generator))
        mask = torch.arange(LENGTH) < length
        ids = torch.where(mask, torch.randint(1, VOCABULARY, (LENGTH,), generator=generator), 0)
        label = int(2 * (ids >= VOCABULARY // 2).sum() > length)
        rows.append({"input_ids": ids, "attention_mask": mask.long(), "labels": label})
    return rows


def small_bert():
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "initializer_range": 0.1, "num_labels": 2}
    return BertForSequenceClassification(BertConfig(**size, **shape))


def accuracy(prediction):
    return {"accuracy": 100 * (prediction.predictions.argmax(1) == prediction.label_ids).mean()}


def train(folder, data, trainer=Trainer, **options):
    settings = {"num_train_epochs": 15, "per_device_train_batch_size": 32, "learning_rate": 2e-3, "use_cpu": True}
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "save_strategy": "no"}
    args = TrainingArguments(folder, log_level="error", **settings, **quiet)
    made = trainer(small_bert(), args, train_dataset=data[0], eval_dataset=data[1], compute_metrics=accuracy, **options)
    made.remove_callback(transformers.PrinterCallback)
    made.train()
    return made


def measured_alpha(model, rows):
    """Half the median distance between sentences of different labels, in the space of embeddings."""
    ids, mask = (torch.stack([row[key] for row in rows]) for key in ("input_ids", "attention_mask"))
    embedded = model.get_input_embeddings()(ids).detach() * mask[..., None]
    return rcad.suggest_alpha(embedded, torch.tensor([row["labels"] for row in rows]))


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    generator = torch.Generator().manual_seed(0)
    data = sentences(200, generator), sentences(1000, generator)
    alpha = measured_alpha(small_bert(), data[0])
    print(f"alpha, measured on the embeddings before training: {alpha:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            "Trainer": train(folder, data),
            "RCADTrainer, lam=0": train(folder, data, RCADTrainer, method="rcad(lam=0)"),
            "RCADTrainer": train(folder, data, RCADTrainer, method=f"rcad(alpha={alpha:.2f}, lam={LAM})"),
        }
        for name, run in runs.items():
            scores = run.evaluate()
            print(f"{name}: test accuracy {scores['eval_accuracy']:.1f}%, NLL {scores['eval_loss']:.3f} (one seed)")
    pairs = zip(runs["Trainer"].model.parameters(), runs["RCADTrainer, lam=0"].model.parameters(), strict=True)
    print("with lam=0 the parameters equal the plain Trainer's, bit for bit:", all(torch.equal(p, q) for p, q in pairs))
    print("A made-up task, lam not tuned: this shows how it is done, not that it helps.")


if __name__ == "__main__":
    main()
