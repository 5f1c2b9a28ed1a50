"""RCAD on tokens: the embeddings move instead of the ids, and padding stays where it is.
A batch is a mapping, as Hugging Face models take it: inputs_embeds and attention_mask."""

import torch
from torch import nn

import rcad

VOCABULARY, WIDTH, LENGTH, PAD = 50, 16, 12, 0


class Classifier(nn.Module):
    """A convolution over the tokens, averaged over the real positions. It sees the padding next to the last token."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD)
        self.tokens = nn.Sequential(nn.Conv1d(WIDTH, 32, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, inputs_embeds, attention_mask):
        real = attention_mask[:, :, None].float()
        hidden = self.tokens(inputs_embeds.transpose(1, 2)).transpose(1, 2)
        pooled = (hidden * real).sum(1) / real.sum(1)
        return {"logits": self.head(pooled)}


def sentences(count, generator):
    """Random tokens of random length; the label says whether the high half of the vocabulary is in the majority."""
    ids = torch.randint(1, VOCABULARY, (count, LENGTH), generator=generator)
    length = torch.randint(4, LENGTH + 1, (count, 1), generator=generator)
    mask = torch.arange(LENGTH) < length
    label = ((ids >= VOCABULARY // 2) & mask).sum(1) * 2 > length[:, 0]
    return torch.where(mask, ids, PAD), mask.long(), label.long()


def train(criterion, ids, mask, y):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        for index in torch.randperm(len(y)).split(50):
            # The table is trained through the clean loss; x' is a constant, so no gradient reaches it from there.
            batch = {"inputs_embeds": model.embedding(ids[index]), "attention_mask": mask[index]}
            optimizer.zero_grad()
            criterion.backward(model, batch, y[index])
            optimizer.step()
    return model


def report(name, model, ids, mask, y):
    with torch.no_grad():
        logits = model(model.embedding(ids), mask)["logits"]
    accuracy, nll = (logits.argmax(1) == y).float().mean(), nn.functional.cross_entropy(logits, y)
    print(f"{name}: test accuracy {100 * accuracy:.1f}%, NLL {nll:.3f} (one seed)")


def main():
    torch.set_num_threads(1)  # for nets this small more threads only wait for each other
    generator = torch.Generator().manual_seed(0)
    train_set, test_set = sentences(200, generator), sentences(1000, generator)
    for name, criterion in (("ERM", rcad.Criterion()), ("RCAD", rcad.RCAD(alpha=2.0, lam=0.1))):
        model = train(criterion, *train_set)
        report(name, model, *test_set)
    print("A made-up task, alpha not tuned: this shows how it is done, not that it helps.")

    ids, mask, y = (part[:8] for part in train_set)
    embedded = model.embedding(ids).detach()
    # Called by itself, the perturbation takes a function of the one tensor that moves.
    step = rcad.GradientStep(alpha=2.0)(lambda e: model(e, mask), embedded, y, mask=mask) - embedded
    assert step[mask == 0].abs().max() == 0
    print("longest step of a padding position:", step[mask == 0].norm(dim=-1).max().item())
    print("length of each example's whole step:", [round(s, 3) for s in step.flatten(1).norm(dim=1).tolist()])


if __name__ == "__main__":
    main()
