"""Causal language models through the Trainer: equal to a loop written out, padded, packed, checkpointed, with LoRA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

from transformers import DataCollatorWithFlattening

from equal import moved, same_parameters
from rcad import InputError, suggest_alpha
from rcad.integrations.embeddings import Packs, embedding_distance
from rcad.integrations.huggingface import RCADTrainer
from tiny_transformers import VOCABULARY, arguments, bert, collated, gpt2, llama, sentences, trained

ALPHA, LAM = 0.5, 0.3
METHOD = f"rcad(lam={LAM})"
NEAR = {"rtol": 1e-4, "atol": 1e-6}


def train(model: Any, folder: Path, rows: Any = None, **options: Any) -> Any:
    if "trainer" not in options:
        options = {"method": METHOD, "embedding_alpha": ALPHA, **options}
    return trained(model, folder, sentences() if rows is None else rows, **options)


def unit_of(model: Any) -> float:
    """The mean length of an embedding; that of padding is zero."""
    lengths = model.get_input_embeddings().weight.detach().norm(dim=1)
    return float(lengths[lengths > 0].mean())


def plain_loop(model: nn.Module, *, lr: float = 0.1) -> None:
    """RCAD on the embeddings of a language model, without a line of rcad's."""
    distance = ALPHA * unit_of(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    for start in [*range(0, 12, 4)] * 2:
        batch = collated(sentences()[start : start + 4])
        mask, target = batch["attention_mask"], batch["labels"][:, 1:]
        counts = target != -100

        def log_p(embedded: Tensor, mask: Tensor = mask) -> Tensor:
            output: Any = model(inputs_embeds=embedded, attention_mask=mask)
            return output.logits[:, :-1].log_softmax(-1)  # type: ignore[no-any-return]

        embedded = model.get_input_embeddings()(batch["input_ids"])  # type: ignore[operator]
        probe = embedded.detach().requires_grad_(True)
        picked = log_p(probe).gather(-1, target.clamp(min=0)[..., None])[..., 0]
        (gradient,) = torch.autograd.grad(-(picked * counts).sum(), probe)
        gradient = gradient * mask[..., None]
        step = distance * gradient / gradient.flatten(1).norm(dim=1)[:, None, None]
        picked = log_p(embedded).gather(-1, target.clamp(min=0)[..., None])[..., 0]
        away = log_p((embedded + step).detach())
        entropy = -(away.exp() * away).sum(-1)
        loss = (-(picked * counts).sum() - LAM * (entropy * counts).sum()) / counts.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("make", [llama, gpt2])
def test_one_flag_equals_a_loop_written_out(make: Any, tmp_path: Path) -> None:
    ours, plain, erm = make(), make().train(), make()
    made = train(ours, tmp_path)
    plain_loop(plain)
    train(erm, tmp_path, method="erm", embedding_alpha=None)
    same_parameters(ours, plain, **NEAR)
    assert moved(ours, erm) > 1e-3
    assert made.resolved.criterion.loss.terms[1].where.alpha == pytest.approx(ALPHA * unit_of(make()))


@pytest.mark.parametrize("method", [METHOD, "rcad_random(lam=0.0)", f"rcad(lam={LAM}, steps=2)"])
def test_packed_sequences_are_those_of_a_padded_batch(method: str, tmp_path: Path) -> None:
    """Each moves by the whole alpha, in one row of a pack as in a row of its own."""
    packed, padded = llama(attn_implementation="eager"), llama(attn_implementation="eager")
    rows, collator = sentences(padded=False), DataCollatorWithFlattening()
    changed = {"remove_unused_columns": False}
    train(packed, tmp_path, rows, method=method, data_collator=collator, changed=changed)
    train(padded, tmp_path, method=method)
    assert moved(packed, llama()) > 1e-2
    same_parameters(packed, padded, **NEAR)


def test_a_packed_row_takes_two_backwards_and_a_batch_of_rows_three(tmp_path: Path) -> None:
    """The tokens of one row need no weights, so that its clean backward is the direction as well."""
    for packed, backwards in ((True, 2), (False, 3)):
        model, seen = llama(), []
        model.lm_head.register_full_backward_hook(lambda *call, seen=seen: seen.append(1))
        options = {"data_collator": DataCollatorWithFlattening()} if packed else {}
        train(model, tmp_path, sentences(4, padded=not packed), **options, changed={"num_train_epochs": 1})
        assert len(seen) == backwards


def test_where_the_packed_sequences_lie() -> None:
    packs, x = Packs(), torch.arange(12.0).view(2, 6, 1)
    packs.find(torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]]))
    rows = packs.apart(x)
    assert rows[..., 0].tolist() == [[0, 1, 2, 0], [3, 4, 0, 0], [5, 0, 0, 0], [6, 7, 8, 9], [10, 11, 0, 0]]
    assert torch.equal(packs.together(rows, x.shape), x)
    for positions in (None, torch.arange(6).expand(2, 6), torch.arange(3, 9)[None]):
        packs.find(positions)
        assert packs.places is None


@pytest.mark.parametrize("make", [llama, gpt2])
def test_gradient_checkpointing_changes_nothing(make: Any, tmp_path: Path) -> None:
    plain, thrifty = make(), make()
    train(plain, tmp_path)
    train(thrifty, tmp_path, changed={"gradient_checkpointing": True})
    same_parameters(plain, thrifty, **NEAR)


@pytest.mark.filterwarnings("error::UserWarning:rcad.*")
@pytest.mark.parametrize("make", [llama, gpt2])
def test_a_resumed_run_is_one_that_was_never_stopped(make: Any, tmp_path: Path) -> None:
    """Also where the file leaves out the last layer, which is the table: nothing is missing then."""
    changed = {"save_strategy": "epoch"}
    whole = train(make(), tmp_path, changed=changed).model
    made = RCADTrainer(
        make(), arguments(tmp_path, **changed), train_dataset=sentences(), method=METHOD, embedding_alpha=ALPHA
    )
    made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    same_parameters(whole, made.model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_lora_equals_a_loop_written_out(checkpointing: bool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")

    def adapted() -> Any:
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(llama(), config)
        for name, value in model.named_parameters():
            if "lora_B" in name:  # zeros at first: nothing would reach lora_A
                nn.init.normal_(value, std=0.2)
        return model

    ours, plain = adapted(), adapted().train()
    train(ours, tmp_path, changed={"gradient_checkpointing": checkpointing})
    plain_loop(plain)
    same_parameters(ours, plain, **NEAR)
    assert moved(ours, adapted()) > 1e-3
    same_parameters(ours.get_base_model().model.embed_tokens, llama().model.embed_tokens)


def test_alpha_in_units_of_the_embeddings(tmp_path: Path) -> None:
    for make, alpha in ((llama, "auto"), (bert, 0.5)):  # texts to classify have the flag as well
        made = RCADTrainer(make(), arguments(tmp_path), embedding_alpha=alpha)
        assert made.resolved.criterion.loss.terms[1].where.alpha == embedding_distance(make(), alpha)
    model = llama()
    rows = model.get_input_embeddings().weight.detach()
    rows[0] = 0.0  # padding says nothing
    assert embedding_distance(model, 2.0) == pytest.approx(2 * float(rows[1:].norm(dim=1).mean()))
    measured = embedding_distance(model, "auto")
    assert measured == pytest.approx(suggest_alpha(rows, torch.arange(VOCABULARY)))
    assert 0.1 < measured / embedding_distance(model, 1.0) < 1.5
    rows.zero_()
    with pytest.raises(InputError, match="but the table holds zeros"):
        embedding_distance(model, 1.0)
