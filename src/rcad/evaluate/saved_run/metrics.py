"""A run's evaluation as flat numbers, for tables and figures that are made of many runs."""

from __future__ import annotations

from pathlib import Path

from rcad.errors import InputError
from rcad.evaluate.saved_run.finished_run import Shelf
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import Settings
from rcad.runs.store import Store


def evaluated_metrics(
    store: Store,
    run_id: str,
    suite: str,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    settings: Settings | None = None,
) -> dict[str, float]:
    """The numbers of one suite for a finished run, measured now or taken from its record.

    Accuracies are in percent. Names by suite:

        calibration  accuracy, top5, nll, brier, brier_*, ece, ece_mass, ece_classwise, aurc, excess_aurc, confidence,
                     entropy, temperature, *_scaled; of a real target: nll, rmse, mae, crps, sharpness, coverage_*
        attacks      attacked_accuracy_<clean | fgsm_0.05 | pgd_0.05 | apgd_ce_0.05 | apgd_dlr_0.05 | worst_0.05>, of
                     the examples right before and after; accuracy_under_fgsm_0.05, all examples attacked, as the
                     RCAD paper counts; masking_signs. A radius has four digits: 8/255 is 0.03137
        corruptions  corrupted_accuracy_<mean | clean | a corruption | severity_1 .. severity_5>, corrupted_error_mean,
                     corrupted_nll_mean
        ood          ood_<data>_<msp | entropy | energy | max_logit>_<auroc | aupr_in | aupr_out | fpr95>,
                     entropy_<adversarial | random>_<alpha>

    For T6 give `Settings(limit=0, attack_eps=(0.05,), attacks=("fgsm",), masking=False)`, for F6 `Settings(limit=0)`.
    """
    shelf = Shelf(store, data_dir, cache_dir, device)
    outcome = evaluate(shelf, run_id, (suite,), settings or Settings())
    if suite in outcome.refused:
        raise InputError(f"expected a run for the suite {suite}, but got {run_id}: {outcome.refused[suite]}")
    return outcome.evaluations[suite].known()
