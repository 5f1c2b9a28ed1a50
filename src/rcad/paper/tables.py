"""The paper's tables and figures on images, T1 to T6, F1 to F4 and F6, as data: rows, columns, numbers, claims.

It reads like the paper's table of contents. T7 (uci), T8 and F7 (moons, boundaries) and F5 (theory) are studies of
their own, which write the same kind of record.
"""

from __future__ import annotations

from dataclasses import replace

from rcad.data.corrupted import CORRUPTIONS
from rcad.paper import published
from rcad.paper.benchmarks import (
    CIFAR10,
    CIFAR100,
    CIFAR100_2K,
    CIFAR100_10K,
    IMAGENET,
    PRETRAINED,
    SIX,
    SUBSETS,
    UNAUGMENTED,
    WRN,
)
from rcad.paper.claims import CONTROLS, ENTROPY, RANDOM, PlannedClaim, Side
from rcad.paper.suite import Column, Curve, Suite, claims, columns_of
from rcad.paper.summaries import AsGood, MostPairs, NoneAhead, SteeperTrend, fewer_is_more

SUBSETS_DRAWN = (
    "The released program's script draws one subset for all runs, classes as they come (its seed is 43); here every "
    "seed draws its own, with equal classes, so that our spread includes the choice of images."
)
PLAIN_DIRECTION = (
    "Where labels are smoothed, RCAD's direction is that of the unsmoothed loss, as in the paper's formula and program."
)
ETA = (
    "ME-ADA weighs the entropy in its ascent by eta = 1, the default of its own program, whose script for CIFAR-10 has "
    "10; the paper does not say which it took."
)
RIVALS = ("ERM", "FGSM", "ADA", "ME-ADA")
SETS = columns_of(SIX)

T1 = Suite(
    name="T1",
    title="Adversarial rivals, ResNet-18",
    about="test accuracy of RCAD, FGSM training, ADA and ME-ADA on six image sets",
    rows=(*RIVALS, "RCAD", *CONTROLS),
    columns=SETS,
    published=published.T1,
    claims=claims(SETS, published.T1, [("RCAD", rival) for rival in RIVALS], p_values=published.P_VALUES),
    notes=(
        SUBSETS_DRAWN,
        ETA,
        "SVHN: the released program trains on the extra images as well, 604,388 in all; here on the 73,257 training "
        "images, with that program's learning rate, which drops at epochs 80 and 120.",
    ),
)

SMOOTHED_CONTROLS = (f"{RANDOM} + LS", f"{ENTROPY} + LS")
T2 = Suite(
    name="T2",
    title="With label smoothing, ResNet-18",
    about="test accuracy of ME-ADA and RCAD on top of label smoothing, on six image sets",
    rows=("LS", "ME-ADA + LS", "RCAD + LS", *SMOOTHED_CONTROLS),
    columns=SETS,
    published=published.T2,
    claims=claims(
        SETS,
        published.T2,
        [("RCAD + LS", "ME-ADA + LS"), ("RCAD + LS", "LS")],
        control=("RCAD + LS", "LS", SMOOTHED_CONTROLS[0]),
        p_values=published.P_VALUES,
    ),
    controls=SMOOTHED_CONTROLS,
    notes=(
        "The paper's table has no row for label smoothing alone; it is run here as the reference.",
        "Its caption smooths by 0.2 on every set; the text by 0.6 on CIFAR-100-2k, as is done here.",
        "The smoothed mass is spread over all K classes, as PyTorch and the released program do; the text spreads it "
        "over the other K - 1.",
        PLAIN_DIRECTION,
        ETA,
    ),
)

WIDE = columns_of(replace(one, recipe=WRN) for one in (CIFAR100_2K, CIFAR100_10K, CIFAR100))
T3 = Suite(
    name="T3",
    title="Wide ResNet 28-10",
    about="test accuracy of ERM, ME-ADA and RCAD with a wide network on CIFAR-100 and two subsets",
    rows=("ERM", "ME-ADA", "RCAD", *CONTROLS),
    columns=WIDE,
    published=published.T3,
    claims=claims(WIDE, published.T3, [("RCAD", "ERM"), ("RCAD", "ME-ADA")]),
    notes=(
        "The small scale runs a Wide ResNet 16-8 instead.",
        "Batches of 128 and no clipping for every set. The text's smaller batches for the subsets may be meant here "
        "too; the released program clips, and drops the learning rate at epochs 100, 150 and 180.",
        ETA,
    ),
)

SIZES = tuple(Column(name, benchmark) for name, benchmark in SUBSETS.items())
T4 = Suite(
    name="T4",
    title="Low data: subsets of CIFAR-100, ResNet-18",
    about="test accuracy of ERM, label smoothing, FGSM training, ME-ADA and RCAD on 500 to 50,000 images",
    rows=("ERM", "LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS),
    columns=SIZES,
    published=published.T4,
    claims=claims(
        SIZES, published.T4, [*(("RCAD", rival) for rival in ("ERM", "LS", "FGSM", "ME-ADA")), ("ERM", "FGSM")]
    ),
    notes=(
        "The paper gives alpha, lambda and the smoothing for 2,000 images; 500 and 1,000 images have the same here.",
        "Batches of 32 for 2,000 images, of 64 for 10,000 and of 128 for all others, as the text has it: 500 images, "
        "less 50 for validation, are four batches an epoch.",
        "RCAD on all 50,000 images is 77.7 in the paper's T4 and 77.3 in its T1.",
        SUBSETS_DRAWN,
        ETA,
    ),
)

TOP = (Column("top-1", IMAGENET), Column("top-5", IMAGENET, metric="top5"))
T5 = Suite(
    name="T5",
    title="ImageNet, a pretrained ResNet-50 finetuned",
    about="top-1 and top-5 accuracy of ERM and RCAD after finetuning on ImageNet",
    rows=(PRETRAINED, "ERM", "RCAD", *CONTROLS),
    columns=TOP,
    published=published.T5,
    claims=claims(TOP, published.T5, [("RCAD", "ERM")], better=lambda column: f"has more {column} accuracy than"),
    notes=(
        "It needs ImageNet in the data folder, as imagenet/ with train/ and val/ of class folders or as Parquet "
        "shards, which are streamed from disk; and weights of a ResNet-50 to start from, which timm fetches, or a file "
        "(--weights).",
        "The text finetunes with CutMix's settings of the optimizer: SGD at 0.1 with drops at epochs 75, 150 and 225 "
        "of 300, batches of 256, weight decay 0.0001. It does not say for how many epochs, nor how images are brought "
        "to size and augmented: here all 300, at 224 pixels, with crop and flip; nothing is held out and the last "
        "epoch counts. The test images are ImageNet's val/.",
        "The printed accuracies of the pretrained network, 69.81 and 89.24, are those that torchvision lists for its "
        "ResNet-18 (69.8 and 89.1); for its first ResNet-50 it has 76.1 and 92.9.",
        "A trial streams the digits from class folders to a small CNN, and has no weights to start from but --weights.",
    ),
)

ATTACK = "accuracy_under_fgsm_0.05"
"""Of all examples, also those that were wrong before: the attack may put them right, and the paper counts them."""
CLEAN = tuple(Column(f"{one.name}, clean", one) for one in (CIFAR100_2K, CIFAR100, CIFAR10))
ATTACKED = tuple(
    replace(one, name=f"{one.benchmark.name}, attacked", metric=ATTACK, evaluation="attacks") for one in CLEAN
)
T6 = Suite(
    name="T6",
    title="An FGSM attack of size 0.05, ResNet-18",
    about="accuracy on clean and on attacked test images of models trained by ERM, FGSM, ADA, ME-ADA and RCAD",
    rows=(*RIVALS, "RCAD", *CONTROLS),
    columns=tuple(column for pair in zip(CLEAN, ATTACKED, strict=True) for column in pair),
    published=published.T6,
    claims=claims(
        ATTACKED,
        published.T6,
        [("RCAD", rival) for rival in RIVALS],
        better=lambda column: "withstands the attack better than",
    ),
    notes=(
        "One weak attack: it says nothing about robustness. Stronger ones, and signs of masked gradients, are in the "
        "evaluation of a run.",
        "The paper calls 0.05 the attack's l1 norm; here every pixel moves by 0.05, which is what FGSM does.",
        ETA,
    ),
)

PUBLISHED_F1 = {CIFAR100_2K.name: {row: one for row, one in published.T4["n=2,000"].items() if row != "ERM"}}
F1 = Suite(
    name="F1",
    title="Perturbed images at growing alpha; RCAD and its rivals",
    about="images up the loss of an ERM model with their entropy, and bars of DA, LS, FGSM, ME-ADA and RCAD",
    rows=("DA", "LS", "FGSM", "ME-ADA", "RCAD", *CONTROLS),
    columns=columns_of((CIFAR100_2K,)),
    published=PUBLISHED_F1,
    claims=claims(
        columns_of((CIFAR100_2K,)),
        PUBLISHED_F1,
        [("RCAD", rival) for rival in ("DA", "LS", "FGSM", "ME-ADA")],
        control=("RCAD", "DA", RANDOM),
    ),
    notes=(
        "The figure does not say which data set its bars show; 2,000 images of CIFAR-100 are taken, and the published "
        "numbers are T4's for them. DA is ERM on augmented images; the paper prints 28.5 for ERM, and nothing for DA.",
        ETA,
    ),
)

BASES = ("DA", "LS", "CutOut", "CutMix", "MixUp")
BASE_CONTROLS = (f"DA + {RANDOM}", f"DA + {ENTROPY}")
SAID = {(CIFAR100_2K.name, "LS"): 3.0}
"""The one gain of these bars that the text names."""
F2 = Suite(
    name="F2",
    title="RCAD on top of augmentation, label smoothing, CutOut, CutMix and MixUp",
    about="pairs of bars: six image sets, four regularisers (CutOut and CutMix share one), with and without RCAD",
    rows=tuple(row for base in BASES for row in (base, f"{base} + RCAD")) + BASE_CONTROLS,
    columns=SETS,
    published={},
    claims=tuple(
        PlannedClaim.of(column.name, first, "is more accurate than", second, SAID.get((column.name, second)))
        for column in SETS
        for first, second in [*((f"{base} + RCAD", base) for base in BASES), ("DA + RCAD", BASE_CONTROLS[0])]
    ),
    controls=BASE_CONTROLS,
    summaries=(
        MostPairs(
            "all pairs",
            "RCAD makes the others more accurate, in 22 of 24 pairs",
            tuple(((f"{base} + RCAD", column.name), (base, column.name)) for column in SETS for base in BASES),
            (22, 24),
        ),
    ),
    notes=(
        "The paper draws these bars without numbers and says that RCAD is better in 22 of 24 pairs, with p far below "
        "0.001 in each of the 22.",
        "The paper's third pair is labelled CutOut/CutMix without saying which set had which; both are run, CutMix on "
        "half of the images, as its authors do on CIFAR.",
        PLAIN_DIRECTION,
    ),
)

ON_ADVERSARIAL = ("LS on Adv, small step", "LS on Adv, large step")
BOTH_SMOOTHED = ("ME-ADA + LS", "RCAD + LS")
LEFT = ("FGSM", *ON_ADVERSARIAL, "ADA", "ME-ADA", "RCAD", *BOTH_SMOOTHED, *CONTROLS)
RIGHT = ("LS", "FGSM", "ME-ADA", "RCAD", "RCAD + LS", *CONTROLS)
BY_SET = tuple(replace(column, rows=("ERM", *LEFT)) for column in SETS)
BY_SIZE = tuple(replace(column, rows=(UNAUGMENTED, "ERM", *RIGHT)) for column in SIZES)
NAMES, COUNTS = tuple(one.name for one in SIX), tuple(one.images("full") for one in SUBSETS.values())
# What T4 claims beyond T1: the three subsets that are one of T1's sets under another name count once.
BEYOND_T1 = tuple(one for one in T4.claims if SUBSETS[one.where] not in SIX or "LS" in (one.winner[0], one.loser[0]))
WITH_SMOOTHED = {name: {**published.T1[name], **published.T2[name]} for name in NAMES}


def printed_gain(first: str, second: str, size: str) -> float:
    """How much better one is than the other, as T4 prints them."""
    row = published.T4[size]
    return row[first].mean - row[second].mean


F3 = Suite(
    name="F3",
    title="Gain over ERM: adversarial rivals, and by the number of images",
    about="T1 and T4 as gains over ERM, with label smoothing on adversarial examples",
    rows=(UNAUGMENTED, "ERM", "LS", *LEFT),
    columns=BY_SET + BY_SIZE,
    published={**WITH_SMOOTHED, **published.T4},
    claims=claims(BY_SET, {}, [("RCAD", ON_ADVERSARIAL[0])], control=None)
    + claims(BY_SET, published.T2, [("RCAD + LS", "ME-ADA + LS")], control=None)
    + claims(BY_SET, WITH_SMOOTHED, [("RCAD + LS", "RCAD"), ("ME-ADA + LS", "ME-ADA")], control=None)
    + T1.claims
    + BEYOND_T1,
    summaries=(
        AsGood(
            "by data set",
            "RCAD is hardly better than LS on Adv with the large step on a few sets",
            tuple((("RCAD", name), (ON_ADVERSARIAL[1], name)) for name in NAMES),
        ),
        SteeperTrend(
            "by number of images",
            "RCAD's gain grows faster than LS's as there are fewer images",
            "RCAD",
            "LS",
            tuple(zip(SUBSETS, COUNTS, strict=True)),
            fewer_is_more([(n, printed_gain("RCAD", "LS", name)) for name, n in zip(SUBSETS, COUNTS, strict=True)]),
        ),
    ),
    curves=tuple(Curve(row, "by data set", row, NAMES, NAMES, "ERM") for row in LEFT)
    + tuple(Curve(row, "by number of images", row, tuple(SUBSETS), COUNTS, "ERM") for row in RIGHT)
    + (Curve("DA, over ERM without it", "by number of images", "ERM", tuple(SUBSETS), COUNTS, UNAUGMENTED),),
    notes=(
        "It shares its runs with T1, T2 and T4 where all are given the same --runs folder.",
        "The right panel has a curve for data augmentation as a gain over ERM, while the tables' ERM seems to have "
        "crop and flip, and has them here; DA is the gain of that ERM over ERM without them.",
        "The right panel's caption has RCAD with label smoothing, the table of its numbers RCAD alone; both are run.",
        PLAIN_DIRECTION,
        ETA,
    ),
)

ALPHAS = {alpha: f"alpha {alpha:g}" for alpha in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)}
LONGEST = 5.0
"""No claim of the paper is about longer steps: they are shown and not judged."""
THRESHOLD = 0.5
"""The paper: effective only above it."""
AT_PRINTED = ALPHAS[CIFAR100_2K.alpha]
"""The one point of the curve whose numbers the paper prints."""
PUBLISHED_F4 = {AT_PRINTED: {row: published.T1[CIFAR100_2K.name][row] for row in ("ERM", "RCAD")}}


def _step_claims() -> tuple[PlannedClaim, ...]:
    """Above the threshold RCAD beats ERM and a random step of that length; below it falls behind its own best."""
    found: list[PlannedClaim] = []
    for alpha, name in ALPHAS.items():
        if THRESHOLD < alpha <= LONGEST:
            column = Column(name, CIFAR100_2K)
            found += claims((column,), PUBLISHED_F4, [("RCAD", "ERM")])
        elif alpha < THRESHOLD:
            text = f"RCAD is less accurate than at {AT_PRINTED}"
            found.append(PlannedClaim(name, text, ("RCAD", AT_PRINTED), ("RCAD", name), None))
    return tuple(found)


F4 = Suite(
    name="F4",
    title="Accuracy against the step size alpha, CIFAR-100-2k",
    about="test accuracy of RCAD and a random direction at nine step sizes; its other panels are T3 and T7",
    rows=("ERM", "RCAD", *CONTROLS),
    columns=tuple(Column(name, replace(CIFAR100_2K, alpha=alpha)) for alpha, name in ALPHAS.items()),
    published=PUBLISHED_F4,
    claims=_step_claims(),
    curves=tuple(
        Curve(row, "step size", row, tuple(ALPHAS.values()), tuple(ALPHAS)) for row in ("ERM", "RCAD", *CONTROLS)
    ),
    notes=(
        "The figure's left panel is T3 and its right panel T7. ERM and the entropy at x do not depend on alpha: "
        "their runs are the same in every column. Steps of 10 and 30 are ours, to see which are too long.",
    ),
)

MEAN = "mean"
CORRUPTED = {
    (one.name, name): Column(f"{one.name}, {name}", one, f"corrupted_accuracy_{name}", "corruptions")
    for one in (CIFAR10, CIFAR100_2K, CIFAR100)
    for name in (MEAN, *CORRUPTIONS)
}
FAR_BEHIND = ("gaussian_noise", "glass_blur")
"""Where the text has both methods about 25 points above ERM."""


def _corrupted(row: str) -> tuple[Side, ...]:
    """A row's cells on CIFAR-10, the one set that the paper shows, by corruption."""
    return tuple((row, CORRUPTED[CIFAR10.name, name].name) for name in CORRUPTIONS)


F6 = Suite(
    name="F6",
    title="Accuracy on corrupted test images",
    about="accuracy of ERM, ME-ADA and RCAD on fifteen corruptions of the test images, at five severities each",
    rows=("ERM", "ME-ADA", "RCAD", *CONTROLS),
    columns=tuple(CORRUPTED.values()),
    published={},
    claims=claims(
        [column for (_, name), column in CORRUPTED.items() if name == MEAN],
        {},
        [("RCAD", "ERM"), ("ME-ADA", "ERM")],
        better=lambda column: "withstands corruption better than",
    )
    + tuple(
        PlannedClaim.of(CORRUPTED[CIFAR10.name, name].name, row, "withstands corruption better than", "ERM", 25.0)
        for name in FAR_BEHIND
        for row in ("RCAD", "ME-ADA")
    ),
    summaries=(
        *(
            MostPairs(
                CIFAR10.name,
                f"{row} is consistently more accurate than ERM, whatever the corruption",
                tuple(zip(_corrupted(row), _corrupted("ERM"), strict=True)),
                (len(CORRUPTIONS), len(CORRUPTIONS)),
            )
            for row in ("RCAD", "ME-ADA")
        ),
        NoneAhead(
            CIFAR10.name,
            "no systematic difference between RCAD and ME-ADA",
            tuple(zip(_corrupted("RCAD"), _corrupted("ME-ADA"), strict=True)),
        ),
    ),
    curves=tuple(
        Curve(row, one.name, row, tuple(f"{one.name}, {name}" for name in CORRUPTIONS), CORRUPTIONS)
        for one in (CIFAR10, CIFAR100_2K, CIFAR100)
        for row in ("ERM", "ME-ADA", "RCAD", *CONTROLS)
    ),
    notes=(
        "The paper draws this figure without numbers, and for CIFAR-10 only; CIFAR-100 and its 2,000 images are ours.",
        "The corruptions are generated from the test images with the published recipes and strengths.",
        ETA,
    ),
)

SUITES = {one.name: one for one in (T1, T2, T3, T4, T5, T6, F1, F2, F3, F4, F6)}
