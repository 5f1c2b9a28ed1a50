"""Texts through the Trainer: equal to plain loops over the core, to the plain Trainer, and to one big batch."""

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import transformers

from equal import moved, plain_loop, same_parameters
from one_line import fails_in_one_line
from rcad import RCAD, Categorical, Gaussian
from rcad.integrations.huggingface import MULTI_LABEL, RCADTrainer, RCADTrainerMixin
from rcad.integrations.resolve import as_method
from tiny_transformers import LABELS, arguments, bert, collated, gpt2, llama, pictures, sentences, texts, trained, vit
from workers import in_two

METHOD = "rcad(alpha=1.5, lam=0.3)"


class Seeded(transformers.TrainerCallback):
    """Dropout that depends on the step alone, so that two loops can draw the same."""

    def on_step_begin(self, args, state, control, **others):
        torch.manual_seed(state.global_step)


ADAMW = {"optim": "adamw_torch", "learning_rate": 1e-2, "max_grad_norm": 0.5, "weight_decay": 0.0}


def core_loop(model, rows, criterion):
    def batches():
        for step, start in enumerate([*range(0, len(rows), 4)] * 2):
            torch.manual_seed(step)
            batch = collated(rows[start : start + 4])
            ids, labels = batch.pop("input_ids"), batch.pop("labels")
            yield {**batch, "inputs_embeds": model.get_input_embeddings()(ids)}, labels

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    return plain_loop(model.train(), criterion, batches(), optimizer, clip=0.5)


@pytest.mark.parametrize("method", [METHOD, "rcad_random(alpha=1.5, lam=0.3)"])
def test_the_trainer_equals_a_loop_over_the_core_bit_for_bit(method, tmp_path):
    ours = bert(dropout=0.2)
    trained(ours, tmp_path, texts(), method, callbacks=[Seeded()], changed=ADAMW)
    assert moved(ours, bert()) > 0.01
    same_parameters(ours, core_loop(bert(dropout=0.2), texts(), as_method(method).criterion()))


def frozen():
    model = bert()
    model.get_input_embeddings().weight.requires_grad_(False)
    return model


def labelled(label):
    return [{**row, "labels": label(row)} for row in texts()]


def yes_no(row):
    return nn.functional.one_hot(row["labels"], LABELS).float()


# A token model's loss is a weighted mean here and a plain one there: the same number, rounded elsewhere.
NEAR = {"rtol": 1e-4, "atol": 1e-6}
SAME = {
    "sequences": (bert, texts(), {}),
    "frozen table": (frozen, texts(), {}),
    "tokens": (lambda: bert("TokenClassification"), texts(per_token=True), NEAR),
    "several labels": (lambda: bert(problem_type=MULTI_LABEL), labelled(yes_no), NEAR),
    "llama": (llama, sentences(), NEAR),
    "gpt2": (gpt2, sentences(), NEAR),
}


@pytest.mark.parametrize("name", SAME)
def test_with_lam_0_it_is_the_plain_trainer(name, tmp_path):
    """Bit for bit where both take the same mean of one batch; accumulating, the plain one errs but for these two."""
    make, rows, tolerance = SAME[name]
    ours, plain, first = make(), make(), make()
    changed = {"gradient_accumulation_steps": 3 if name in ("llama", "gpt2") else 1}
    mine = trained(ours, tmp_path, rows, "rcad(alpha=1.5, lam=0.0)", changed=changed)
    theirs = trained(plain, tmp_path, rows, trainer=transformers.Trainer, changed=changed)
    assert (moved(*(model.get_input_embeddings() for model in (ours, first))) > 1e-3) == (make is not frozen)
    same_parameters(ours, plain, **tolerance)
    assert mine.evaluate(rows)["eval_loss"] == pytest.approx(theirs.evaluate(rows)["eval_loss"], rel=1e-5)


@pytest.mark.parametrize(("of", "counted"), [("Sequence", True), ("Token", True), ("Sequence", False)])
def test_accumulated_batches_equal_one_big_batch(of, counted, tmp_path):
    """12 examples as 12, as 4 + 4 + 4, and as 5 + 5 + 2 where the Trainer counts items: batches count equally else."""
    models, logged = [], []
    for size, steps in ((12, 1), (4, 3), (5, 3))[: 3 if counted else 2]:
        models.append(bert(f"{of}Classification"))
        models[-1].accepts_loss_kwargs = counted
        changed = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        made = trained(models[-1], tmp_path, texts(per_token=of == "Token"), METHOD, changed=changed)
        assert made.model_accepts_loss_kwargs == counted
        logged.append([row["loss"] for row in made.state.log_history if "loss" in row])
    assert moved(models[0], bert(f"{of}Classification")) > 0.01
    for other, losses in zip(models[1:], logged[1:], strict=True):
        # Sums over examples in another order: float32 rounding.
        same_parameters(models[0], other, rtol=1e-4, atol=1e-6)
        assert losses == pytest.approx(logged[0], rel=1e-5)


def test_the_logs_hold_the_parts(tmp_path):
    made = trained(bert(), tmp_path, texts(), METHOD, changed={"logging_steps": 3})
    rows = [row for row in made.state.log_history if "loss" in row]
    assert len(rows) == 2
    for row in rows:
        assert row["loss"] == pytest.approx(row["train_nll"] - 0.3 * row["train_entropy"], rel=1e-5)
        assert 0 < row["train_entropy"] < torch.tensor(LABELS).log()


def test_evaluation_and_prediction_are_the_plain_trainers(tmp_path):
    rows, model = texts(), bert(dropout=0.2)
    ours = RCADTrainer(model, arguments(tmp_path), eval_dataset=rows, method="label_smoothing(eps=0.3) + rcad")
    plain = transformers.Trainer(model, arguments(tmp_path), eval_dataset=rows)
    assert ours.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    assert (ours.predict(rows).predictions == plain.predict(rows).predictions).all()


def soft(row):
    return 0.8 * yes_no(row) + 0.2 / LABELS


def real(row):
    return torch.sin(row["input_ids"].sum())


@pytest.mark.parametrize(
    ("likelihood", "label", "config"),
    [(Gaussian(), real, {"num_labels": 2}), (Categorical(), soft, {"problem_type": "single_label_classification"})],
)
def test_other_labels_equal_the_core_and_are_evaluated_by_their_likelihood(likelihood, label, config, tmp_path):
    """A mean and a log-variance for real numbers; probabilities of the classes as labels."""
    rows = labelled(label)
    ours, plain = bert(**config), bert(**config)
    method = "gaussian + rcad(alpha=1.5, lam=0.3)" if label is real else METHOD
    made = trained(ours, tmp_path, rows, method, changed=ADAMW)
    same_parameters(ours, core_loop(plain, rows, RCAD(1.5, 0.3, likelihood=likelihood)))
    batch = collated(rows)
    labels = batch.pop("labels")
    with torch.no_grad():
        nll = likelihood.nll(ours.eval()(**batch).logits, labels).mean().item()
    assert made.evaluate(rows)["eval_loss"] == pytest.approx(nll, rel=1e-5)


def weighs(self, model, inputs, return_outputs=False, **others):
    """A compute_loss of one's own: the usual recipe for class weights."""
    labels = inputs.pop("labels")
    outputs = model(**inputs)
    loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 10.0, 0.1]))
    return (loss, outputs) if return_outputs else loss


def passes_by(self, model, inputs, *args, **others):
    loss = model.train()(**inputs).loss
    self.accelerator.backward(loss)
    return loss.detach()


def passes_by_later(self, *args):
    return (passes_by if self.state.global_step else RCADTrainer.training_step)(self, *args)


def trainer_with(name, own, kind=RCADTrainer):
    return type("Mine", (kind,), {name: own})


BEHIND = type("Whole", (RCADTrainerMixin, trainer_with("compute_loss", weighs, transformers.Trainer)), {})


@pytest.mark.parametrize(
    ("kind", "says", "steps"),
    [
        (trainer_with("training_step", passes_by), "expected Mine.training_step to call super().training_step, w", 0),
        (trainer_with("compute_loss", weighs), "expected Mine.compute_loss to call super().compute_loss, where", 0),
        (BEHIND, "but got Mine.compute_loss as well, which would count in evaluation only", 0),
        (trainer_with("training_step", passes_by_later), "expected Mine.training_step to call", 1),
    ],
)
def test_a_step_in_place_of_the_methods_is_refused(kind, says, steps, tmp_path):
    model, same = bert(), bert()
    with fails_in_one_line(says, "method=rcad.RCAD(..., likelihood=rcad.Categorical(weight=...))"):
        kind(model, arguments(tmp_path), train_dataset=texts(), method=METHOD).train()
    if steps:
        trained(same, tmp_path, texts(), METHOD, changed={"max_steps": steps})
    same_parameters(model, same)  # nothing was trained since


def by_hand(self, model, inputs, num_items_in_batch=None):
    loss = self.compute_loss(model.train(), inputs, num_items_in_batch=num_items_in_batch)
    self.accelerator.backward(loss)
    return loss.detach()


def doubled(self, *args, **others):
    return 2 * RCADTrainer.compute_loss(self, *args, **others)


@pytest.mark.parametrize(("name", "own", "rate"), [("training_step", by_hand, 0.1), ("compute_loss", doubled, 0.05)])
def test_what_a_subclass_does_with_the_methods_loss_counts(name, own, rate, tmp_path):
    ours, plain, first = bert(), bert(), bert()
    trained(ours, tmp_path, texts(), METHOD, trainer=trainer_with(name, own), changed={"learning_rate": rate})
    trained(plain, tmp_path, texts(), METHOD)
    assert moved(ours, first) > 0.01
    same_parameters(ours, plain, rtol=1e-4, atol=1e-6)  # one backward in place of two: float32 rounding


class IdsOnly(nn.Module):
    def forward(self, input_ids, labels=None):
        return input_ids.float()


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 40}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))


BYTES = [{**row, "pixel_values": (255 * row["pixel_values"]).byte()} for row in pictures()]
CRITERION = {"method": RCAD(1.0, 0.1)}
GPT2 = gpt2("ForSequenceClassification")


@pytest.mark.parametrize(
    ("model", "options", "changed", "says"),
    [
        (bert, {}, {"label_smoothing_factor": 0.1}, 'method="label_smoothing(eps=0.1) + rcad"'),
        (bert, {"compute_loss_func": len}, {}, "compute_loss_func as well"),
        (bert, {}, {"optim": "lomo"}, "an optimizer that steps after the backward"),
        (bert, {}, {"_n_gpu": 2}, "expected one GPU per process, but got 2; start with torchrun"),
        (bert("QuestionAnswering"), {}, {}, "but got start_positions, end_positions"),
        (bert(problem_type="regression"), {}, {}, 'likelihood for problem_type="regression"'),
        (bert(problem_type=MULTI_LABEL), CRITERION, {}, f'Bernoulli likelihood for problem_type="{MULTI_LABEL}"'),
        (IdsOnly, {}, {}, "expected a model that takes inputs_embeds, which are to move, but IdsOnly"),
        (t5, {"method": "erm"}, {}, "but got T5ForConditionalGeneration, which has an encoder and a decoder"),
        (bert, {"train_dataset": labelled(soft)}, {}, "config.problem_type that says what torch.float32 labels are"),
        (llama, {"method": None}, {}, 'method="rcad(alpha=..., lam=...)" or embedding_alpha=, but got neither'),
        (llama, {"embedding_alpha": -1.0}, {}, "expected embedding_alpha to be a finite number >= 0, but got -1.0"),
        (bert, {"method": "mixup + rcad", "train_dataset": texts()}, {}, "for the method 'mixup + rcad', but got (4, "),
        (vit, {"processing_class": transformers.ViTImageProcessor(), "mean": (0.5,)}, {}, "expected std beside mean"),
        (vit, {"train_dataset": BYTES}, {}, "expected floating-point pixel_values, but got torch.uint8; divide them"),
        (GPT2, {"train_dataset": texts()}, {}, "for input_ids and for their inputs_embeds"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(model, options, changed, says, tmp_path):
    args = arguments(tmp_path, **{key: value for key, value in changed.items() if key != "_n_gpu"})
    vars(args).update(changed)
    with fails_in_one_line(says):
        RCADTrainer(model if isinstance(model, nn.Module) else model(), args, **{"method": METHOD, **options}).train()


WORKER = """
import sys, torch
from accelerate.state import AcceleratorState, GradientState
from integrations.test_huggingface_text import SPREAD
from rcad.integrations.huggingface import RCADTrainer
from sharding import FSDPModule, gathered, sharded
from tiny_transformers import trained
kind, name, out, rank = sys.argv[1:]
AcceleratorState._reset_state(True)  # those of the test's own process
GradientState._reset_state()
model, rows, layer, options = SPREAD[name]()
class Sharded(RCADTrainer):
    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if kind == "fsdp2":
            layers = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": [layer]}
            sharded(self.accelerator, **layers)
            self.is_fsdp_enabled = True
changed = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
changed |= {"ddp_find_unused_parameters": name == "sequences"} if kind == "ddp" else {}
trainer = trained(model, out, rows, trainer=Sharded, changed=changed, **options)
wrapper = {"ddp": torch.nn.parallel.DistributedDataParallel, "fsdp2": FSDPModule}[kind]
assert isinstance(trainer.model_wrapped, wrapper)
torch.save(gathered(trainer.model), f"{out}/{rank}.pt")
"""
ON_EMBEDDINGS = {"method": "rcad(lam=0.3)", "embedding_alpha": 0.5}
# A model, its data, the layer that is sharded, and the options of the trainer; llama has a table of its own, gpt2 one
# that is the last layer too.
SPREAD = {
    "sequences": lambda: (bert(), texts(), "BertLayer", {"method": METHOD}),
    "tokens": lambda: (bert("TokenClassification"), texts(per_token=True), "BertLayer", {"method": METHOD}),
    "llama": lambda: (llama(), sentences(), "LlamaDecoderLayer", ON_EMBEDDINGS),
    "gpt2": lambda: (gpt2(), sentences(), "GPT2Block", ON_EMBEDDINGS),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
@pytest.mark.parametrize("name", SPREAD)
def test_two_processes_with_accumulation_equal_one_big_batch(name, kind, tmp_path):
    in_two(WORKER, kind, name, tmp_path)
    (alone, rows, _, options), (together, *_) = SPREAD[name](), SPREAD[name]()
    trained(alone, tmp_path, rows, trainer=RCADTrainer, changed={"per_device_train_batch_size": 12}, **options)
    assert moved(alone, together) > 0.01
    for rank in (0, 1):
        together.load_state_dict(torch.load(tmp_path / f"{rank}.pt", weights_only=True))
        same_parameters(alone, together, rtol=1e-4, atol=1e-6)
