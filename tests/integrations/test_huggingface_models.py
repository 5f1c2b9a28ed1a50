"""Images, audio and causal language models through the Trainer: units of alpha, checkpoints, packed rows, LoRA."""

import pytest
import safetensors.torch
import torch
from torch import nn

pytest.importorskip("transformers")

import transformers
from transformers import DataCollatorWithFlattening

from equal import moved, plain_loop, same_parameters, sgd
from one_line import fails_in_one_line
from rcad import RCAD, InputError, suggest_alpha
from rcad.integrations.embeddings import embedding_distance, has_tokens
from rcad.integrations.huggingface import RCADTrainer
from tiny_transformers import LABELS, arguments, bert, collated, gpt2, llama, pictures, sentences, trained, vit

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def processor(**changed):
    settings = {"do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD), **changed}
    return transformers.ViTImageProcessor(**settings)


IN_PIXELS = "rcad(alpha=1.0, lam=0.3)"


@pytest.mark.parametrize(
    ("made", "options", "scales"),
    [
        (processor(), {}, {"mean": MEAN, "std": STD}),
        (processor(do_normalize=False), {}, {}),
        (processor(), {"std": (1.0,), "mean": (0.0,)}, {}),
        (None, {}, {}),
    ],
)
def test_alpha_is_in_pixels_where_a_processor_normalised(made, options, scales, tmp_path):
    rows = pictures(mean=0.5, std=0.25) if scales else pictures()
    trained(ours := vit(), tmp_path, rows, IN_PIXELS, processing_class=made, **options)
    batches = [collated(rows[start : start + 4]) for start in range(0, len(rows), 4)] * 2
    pairs, plain = [({"pixel_values": batch["pixel_values"]}, batch["labels"]) for batch in batches], vit().train()
    same_parameters(ours, plain_loop(plain, RCAD(1.0, 0.3, **scales), pairs, sgd(plain, momentum=0.0)))
    assert moved(ours, vit()) > 0.01


class Segmenter(nn.Conv2d):
    """Its loss counts labels as transformers' models do."""

    def forward(self, pixel_values, labels=None, num_items_in_batch=None, **kwargs):
        logits = super().forward(pixel_values)
        if labels is None:
            return {"logits": logits}
        total = nn.functional.cross_entropy(logits, labels, reduction="sum")
        return {"loss": total / num_items_in_batch, "logits": logits}


def test_pixels_without_a_label_do_not_count(tmp_path):
    """12 images, of which the labelled part differs, as 5 + 5 + 2."""
    rows = [{**row, "labels": torch.arange(64).view(8, 8) % LABELS} for row in pictures()]
    for number, row in enumerate(rows):
        row["labels"][number % 8 :] = -100
    changed, nets = {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 3}, []
    for options in ({"method": "erm"}, {"trainer": transformers.Trainer}):
        torch.manual_seed(0)
        nets.append(Segmenter(3, LABELS, 3, padding=1))
        trained(nets[-1], tmp_path, rows, **options, changed=changed)
    same_parameters(*nets, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("best", [False, True])
def test_a_checkpoint_under_other_names_is_loaded_whole(best, tmp_path):
    """transformers writes a ViT under the names of older versions and, resuming, finds only some of them again."""
    settings = {"save_strategy": "epoch", "eval_strategy": "epoch", "load_best_model_at_end": best}
    settings |= {"metric_for_best_model": "eval_loss", "greater_is_better": False}
    options = {"method": IN_PIXELS, "eval_dataset": pictures(), "changed": settings}
    first = trained(vit(), tmp_path, pictures(), **options)
    names = safetensors.torch.load_file(tmp_path / "checkpoint-3" / "model.safetensors").keys()
    assert not set(names) >= set(first.model.state_dict()), "the names are now the model's: this test has no object"
    if best:
        assert str(first.state.best_model_checkpoint).endswith("checkpoint-3"), "not the last: it must be loaded"
        kept = transformers.ViTForImageClassification.from_pretrained(first.state.best_model_checkpoint)
        same_parameters(first.model, kept)
    else:
        again = trained(vit(), tmp_path, pictures(), **options, resume=str(tmp_path / "checkpoint-3"))
        same_parameters(first.model, again.model)


def test_what_a_checkpoint_does_not_hold_is_said(tmp_path):
    made = trained(vit(), tmp_path, pictures(), "erm", changed={"save_strategy": "epoch"})
    file = tmp_path / "checkpoint-3" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["classifier.weight"]
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    with pytest.warns(UserWarning, match=r"checkpoint-3 to hold every parameter of .*, but classifier\.weight is"):
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def audio():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = {"conv_dim": (8,), "conv_stride": (4,), "conv_kernel": (8,), "num_feat_extract_layers": 1}
    still = {"mask_time_prob": 0.0, "layerdrop": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    rest = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_labels": LABELS}
    config = transformers.Wav2Vec2Config(**sizes, **encoder, **still, **rest, feat_extract_norm="layer")
    return transformers.Wav2Vec2ForSequenceClassification(config)


def test_audio_moves_once_its_feature_encoder_is_frozen(tmp_path):
    assert not has_tokens(audio())
    waves = torch.randn(12, 96, generator=torch.Generator().manual_seed(0))
    rows = [{"input_values": wave, "labels": torch.tensor(i % LABELS)} for i, wave in enumerate(waves)]
    with fails_in_one_line("call model.freeze_feature_encoder() first"):
        trained(audio(), tmp_path, rows, IN_PIXELS)
    ours, seen = audio(), []
    ours.freeze_feature_encoder()
    ours.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["input_values"]), with_kwargs=True)
    trained(ours, tmp_path, rows, IN_PIXELS)
    torch.testing.assert_close((seen[1] - seen[0]).norm(dim=1), torch.ones(4))


ALPHA, LAM = 0.5, 0.3
METHOD = f"rcad(lam={LAM})"
NEAR = {"rtol": 1e-4, "atol": 1e-6}


def train(model, folder, rows=None, **options):
    options = {"method": METHOD, "embedding_alpha": ALPHA, **options}
    return trained(model, folder, sentences() if rows is None else rows, **options)


def written_out(model):
    """RCAD on the embeddings of a language model, without a line of rcad's."""
    lengths = model.get_input_embeddings().weight.detach().norm(dim=1)
    distance = ALPHA * float(lengths[lengths > 0].mean())  # that of padding is zero
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for start in [*range(0, 12, 4)] * 2:
        batch = collated(sentences()[start : start + 4])
        mask, target = batch["attention_mask"], batch["labels"][:, 1:]

        def logits(embedded, mask=mask):
            return model(inputs_embeds=embedded, attention_mask=mask).logits[:, :-1]

        embedded = model.get_input_embeddings()(batch["input_ids"])
        probe = embedded.detach().requires_grad_(True)
        nll = nn.functional.cross_entropy(logits(probe).mT, target, reduction="sum")  # -100 does not count
        gradient = torch.autograd.grad(nll, probe)[0] * mask[..., None]
        step = distance * gradient / gradient.flatten(1).norm(dim=1)[:, None, None]
        entropy = torch.distributions.Categorical(logits=logits((embedded + step).detach())).entropy()
        nll = nn.functional.cross_entropy(logits(embedded).mT, target, reduction="sum")
        counts = target != -100
        optimizer.zero_grad()
        ((nll - LAM * (entropy * counts).sum()) / counts.sum()).backward()
        optimizer.step()


@pytest.mark.parametrize(("make", "checkpointing"), [(llama, False), (llama, True), (gpt2, False)])
def test_one_flag_equals_a_loop_written_out(make, checkpointing, tmp_path):
    ours, plain, erm = make(), make().train(), make()
    train(ours, tmp_path, changed={"gradient_checkpointing": checkpointing})
    written_out(plain)
    train(erm, tmp_path, method="erm", embedding_alpha=None)
    same_parameters(ours, plain, **NEAR)
    assert moved(ours, erm) > 1e-3


@pytest.mark.parametrize("method", [METHOD, "rcad_random(lam=0.0)", f"rcad(lam={LAM}, steps=2)"])
def test_packed_sequences_are_those_of_a_padded_batch(method, tmp_path):
    """Each moves by the whole alpha, in one row of a pack as in a row of its own."""
    packed, padded = llama(attn_implementation="eager"), llama(attn_implementation="eager")
    rows, collator = sentences(padded=False), DataCollatorWithFlattening()
    changed = {"remove_unused_columns": False}
    train(packed, tmp_path, rows, method=method, data_collator=collator, changed=changed)
    train(padded, tmp_path, method=method)
    assert moved(packed, llama()) > 1e-2
    same_parameters(packed, padded, **NEAR)


@pytest.mark.filterwarnings("error::UserWarning:rcad.*")
@pytest.mark.parametrize("make", [llama, gpt2])
def test_a_resumed_run_is_one_that_was_never_stopped(make, tmp_path):
    """Also where the file leaves out the last layer, which is the table: nothing is missing then."""
    changed = {"save_strategy": "epoch"}
    whole = train(make(), tmp_path, changed=changed).model
    same_parameters(whole, train(make(), tmp_path, changed=changed, resume=str(tmp_path / "checkpoint-3")).model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_lora_equals_a_loop_written_out(checkpointing, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")

    def adapted():
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(llama(), config)
        for name, value in model.named_parameters():
            if "lora_B" in name:  # zeros at first: nothing would reach lora_A
                nn.init.normal_(value, std=0.2)
        return model

    ours, plain = adapted(), adapted().train()
    train(ours, tmp_path, changed={"gradient_checkpointing": checkpointing})
    written_out(plain)
    same_parameters(ours, plain, **NEAR)
    assert moved(ours, adapted()) > 1e-3
    same_parameters(ours.get_base_model().model.embed_tokens, llama().model.embed_tokens)


def test_alpha_in_units_of_the_embeddings(tmp_path):
    made = RCADTrainer(bert(), arguments(tmp_path), embedding_alpha="auto")  # texts to classify have the flag as well
    assert made.resolved.criterion.loss.terms[1].where.alpha == embedding_distance(bert(), "auto")
    model = llama()
    rows = model.get_input_embeddings().weight.detach()
    rows[0] = 0.0  # padding says nothing
    assert embedding_distance(model, 2.0) == pytest.approx(2 * float(rows[1:].norm(dim=1).mean()))
    measured = embedding_distance(model, "auto")
    assert measured == pytest.approx(suggest_alpha(rows, torch.arange(len(rows))))
    rows.zero_()
    with pytest.raises(InputError, match="but the table holds zeros"):
        embedding_distance(model, 1.0)
