"""Images through the Trainer: pixels as the unit, augmentation, checkpoints, several processes; and audio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

import transformers

from equal import moved, plain_loop, same_parameters, sgd
from one_line import one_line
from rcad import RCAD
from rcad.integrations.huggingface import RCADTrainer
from tiny_transformers import LABELS, arguments, collated, pictures, trained, vit

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def processor(**changed: Any) -> transformers.BaseImageProcessor:
    settings = {"do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD), **changed}
    return transformers.ViTImageProcessor(**settings)


def core_loop(model: nn.Module, rows: list[dict[str, Tensor]], criterion: RCAD) -> nn.Module:
    """Two epochs of batches of 4, as `trained` does it."""
    batches = [collated(rows[start : start + 4]) for start in range(0, len(rows), 4)] * 2
    pairs = [({"pixel_values": batch["pixel_values"]}, batch["labels"]) for batch in batches]
    return plain_loop(model.train(), criterion, pairs, sgd(model, momentum=0.0))


@pytest.mark.parametrize(
    ("made", "options", "scales"),
    [
        (processor(), {}, {"mean": MEAN, "std": STD}),
        (processor(do_normalize=False), {}, {}),
        (processor(), {"std": (1.0,), "mean": (0.0,)}, {}),
        (None, {}, {}),
    ],
)
def test_alpha_is_in_pixels_where_a_processor_normalised(made: Any, options: Any, scales: Any, tmp_path: Path) -> None:
    rows = pictures(mean=0.5, std=0.25) if scales else pictures()
    trained(ours := vit(), tmp_path, rows, "rcad(alpha=1.0, lam=0.3)", processing_class=made, **options)
    assert moved(ours, vit()) > 0.01
    same_parameters(ours, core_loop(vit(), rows, RCAD(1.0, 0.3, **scales)))


@pytest.mark.parametrize("best", [False, True])
def test_a_checkpoint_under_other_names_is_loaded_whole(best: bool, tmp_path: Path) -> None:
    """transformers writes a ViT under the names of older versions and, resuming, finds only some of them again."""
    method, settings = "rcad(alpha=1.0, lam=0.3)", {"save_strategy": "epoch", "eval_strategy": "epoch"}
    settings |= {"load_best_model_at_end": best, "metric_for_best_model": "eval_loss", "greater_is_better": False}

    def made(**changed: Any) -> RCADTrainer:
        sets = {"train_dataset": pictures(), "eval_dataset": pictures()}
        return RCADTrainer(vit(), arguments(tmp_path, **{**settings, **changed}), **sets, method=method)

    first = made()
    first.train()
    names = safetensors.torch.load_file(tmp_path / "checkpoint-3" / "model.safetensors").keys()
    assert not set(names) >= set(first.model.state_dict()), "the names are now the model's: this test has no object"
    if best:
        assert str(first.state.best_model_checkpoint).endswith("checkpoint-3"), "not the last: it must be loaded"
        kept = transformers.ViTForImageClassification.from_pretrained(first.state.best_model_checkpoint)
        assert moved(kept, vit()) > 0.01
        same_parameters(first.model, kept)
    else:
        again = made()
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        same_parameters(first.model, again.model)


def test_what_a_checkpoint_does_not_hold_is_said(tmp_path: Path) -> None:
    made = trained(vit(), tmp_path, pictures(), "erm", changed={"save_strategy": "epoch"})
    file = tmp_path / "checkpoint-3" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["classifier.weight"]
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    with pytest.warns(
        UserWarning, match=r"checkpoint-3 to hold every parameter of .*, but classifier\.weight is missing"
    ):
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def audio() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = {"conv_dim": (8,), "conv_stride": (4,), "conv_kernel": (8,), "num_feat_extract_layers": 1}
    still = {"mask_time_prob": 0.0, "layerdrop": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    rest = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_labels": LABELS}
    config = transformers.Wav2Vec2Config(**sizes, **encoder, **still, **rest, feat_extract_norm="layer")
    return transformers.Wav2Vec2ForSequenceClassification(config)  # type: ignore[no-any-return]


def test_audio_moves_once_its_feature_encoder_is_frozen(tmp_path: Path) -> None:
    waves = torch.randn(12, 96, generator=torch.Generator().manual_seed(0))
    rows = [{"input_values": wave, "labels": torch.tensor(i % LABELS)} for i, wave in enumerate(waves)]
    with one_line("call model.freeze_feature_encoder() first"):
        trained(audio(), tmp_path, rows, "rcad(alpha=1.0, lam=0.3)")
    ours, erm, seen = audio(), audio(), []
    for model in (ours, erm):
        model.freeze_feature_encoder()
    ours.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_values"].detach()), with_kwargs=True
    )
    trained(ours, tmp_path, rows, "rcad(alpha=1.0, lam=0.3)")
    trained(erm, tmp_path, rows, "erm")
    torch.testing.assert_close((seen[1] - seen[0]).norm(dim=1), torch.ones(4))
    assert moved(ours, erm) > 1e-4
