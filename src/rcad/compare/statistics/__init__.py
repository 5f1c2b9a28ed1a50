"""What a handful of seeds can and cannot show: intervals, tests, effect sizes, power, from plain lists of results."""

from rcad.compare.statistics.describe import Summary, describe
from rcad.compare.statistics.effects import cohen_dz, hedges_g, superiority, superiority_paired
from rcad.compare.statistics.groups import Difference, adjusted, compare_groups
from rcad.compare.statistics.paired_splits import LEVEL, Paired, holm, paired
from rcad.compare.statistics.power import power_paired, power_welch, seeds_needed
from rcad.compare.statistics.published import AgainstPublished, against_published
from rcad.compare.statistics.ranks import Ranked, wilcoxon
from rcad.compare.statistics.too_few import FEWEST, TooFew
from rcad.compare.statistics.ttests import Welch, paired_t, welch, welch_from_summaries

__all__ = [
    "FEWEST",
    "LEVEL",
    "AgainstPublished",
    "Difference",
    "Paired",
    "Ranked",
    "Summary",
    "TooFew",
    "Welch",
    "adjusted",
    "against_published",
    "cohen_dz",
    "compare_groups",
    "describe",
    "hedges_g",
    "holm",
    "paired",
    "paired_t",
    "power_paired",
    "power_welch",
    "seeds_needed",
    "superiority",
    "superiority_paired",
    "welch",
    "welch_from_summaries",
    "wilcoxon",
]
