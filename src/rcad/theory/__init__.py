"""The paper's linear analysis: the problem, projected ERM and RCAD, closed forms, checks of every lemma, sweeps.

`python -m rcad.theory --help` computes all of it.
"""

from rcad.theory.linear import Problem, Sample
from rcad.theory.population import Setting, population_gradient, population_surrogate
from rcad.theory.projected import erm_step, rcad_step, trajectory
from rcad.theory.study import Settings, Study, run_study
from rcad.theory.theorem import conditions

__all__ = [
    "Problem",
    "Sample",
    "Setting",
    "Settings",
    "Study",
    "conditions",
    "erm_step",
    "population_gradient",
    "population_surrogate",
    "rcad_step",
    "run_study",
    "trajectory",
]
