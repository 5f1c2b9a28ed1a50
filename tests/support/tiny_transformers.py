"""Tiny Hugging Face models built in place, made-up data for them, and a quiet Trainer. Nothing is downloaded."""

import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch import Tensor, nn

LABELS, PAD, VOCABULARY = 3, 0, 40
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def bert(head: str = "SequenceClassification", *, dropout: float = 0.0, **config: Any) -> nn.Module:
    """A BERT of two layers, sure enough of itself that the entropy matters."""
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": 12, "initializer_range": 0.2, "num_labels": LABELS}
    drop = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return _built(f"BertFor{head}", transformers.BertConfig(**{**SIZES, **shape, **drop, **config}))


def vit() -> nn.Module:
    shape = {"image_size": 8, "patch_size": 4, "num_labels": LABELS, "initializer_range": 0.2}
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _built("ViTForImageClassification", transformers.ViTConfig(**SIZES, **shape, **drop))


def llama(**config: Any) -> Any:
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "initializer_range": 0.2, "pad_token_id": PAD}
    return _built("LlamaForCausalLM", transformers.LlamaConfig(**SIZES, **shape, **config))


def gpt2(head: str = "LMHeadModel") -> Any:
    """The language model has one table for what comes in and what goes out."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": VOCABULARY, "n_positions": 64}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.2}
    return _built(f"GPT2{head}", transformers.GPT2Config(**sizes, **still, num_labels=LABELS, pad_token_id=PAD))


def _built(name: str, settings: Any) -> Any:
    torch.manual_seed(0)
    return getattr(transformers, name)(settings)


def _tokens(generator: torch.Generator, shortest: int) -> tuple[Tensor, Tensor]:
    """A sentence of random tokens and length, and where it is."""
    length = torch.randint(shortest, 9, (), generator=generator)
    return torch.randint(1, VOCABULARY, (8,), generator=generator), torch.arange(8) < length


def texts(count: int = 12, *, padded: bool = True, per_token: bool = False, seed: int = 1) -> list[dict[str, Tensor]]:
    """Sentences, labels at random; per token, labels of padding are -100."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        ids, mask = _tokens(generator, 3 if padded else 8)
        labels = torch.randint(LABELS, (8,), generator=generator)
        labels = torch.where(mask, labels, -100) if per_token else labels[0]
        rows.append({"input_ids": torch.where(mask, ids, PAD), "attention_mask": mask.long(), "labels": labels})
    return rows


def sentences(count: int = 12, *, padded: bool = True) -> list[dict[str, Tensor]]:
    """For language models: of padding and a prompt of two tokens labels are -100."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(count):
        ids, mask = _tokens(generator, 4)
        labels = torch.where(mask & (torch.arange(8) >= 2), ids, -100)
        row = {"input_ids": torch.where(mask, ids, PAD), "attention_mask": mask.long(), "labels": labels}
        rows.append(row if padded else {key: row[key][mask] for key in ("input_ids", "labels")})
    return rows


def pictures(count: int = 12, *, mean: float = 0.0, std: float = 1.0) -> list[dict[str, Tensor]]:
    """Random images in [0, 1], normalised, with labels at random."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.rand(count, 3, 8, 8, generator=generator)
    labels = torch.randint(LABELS, (count,), generator=generator)
    return [{"pixel_values": (x - mean) / std, "labels": y} for x, y in zip(pixels, labels, strict=True)]


def collated(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def arguments(folder: Path, **changed: Any) -> transformers.TrainingArguments:
    """Plain SGD on the CPU, in the order of the data, silent; whatever is given differs."""
    sgd = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    order = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "train_sampling_strategy": "sequential"}
    silent = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "log_level": "error"}
    settings: dict[str, Any] = {**sgd, **order, **silent, "use_cpu": True, "logging_steps": 1}
    return transformers.TrainingArguments(str(folder), **{**settings, **changed})


def trained(model: Any, folder: Path, rows: Any, method: Any = None, *, trainer: Any = None, **options: Any) -> Any:
    """A trainer, ours by default, that has trained; of the options `changed` are arguments, `resume` a checkpoint."""
    from rcad.integrations.huggingface import RCADTrainer

    changed, resume = options.pop("changed", {}), options.pop("resume", None)
    options |= {} if method is None else {"method": method}
    made = (trainer or RCADTrainer)(model, arguments(folder, **changed), train_dataset=rows, **options)
    made.train(resume_from_checkpoint=resume)
    return made
