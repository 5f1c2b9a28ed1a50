"""The paper's linear analysis: the problem, projected ERM and RCAD, closed forms, checks of every lemma, sweeps.

`python -m rcad.paper.theory --help` computes all of it.
"""

from rcad.paper.theory.linear import Problem, Sample
from rcad.paper.theory.population import Setting, population_gradient, population_surrogate
from rcad.paper.theory.projected import erm_step, rcad_step, trajectory
from rcad.paper.theory.study import Settings, Study, run_study
from rcad.paper.theory.theorem import conditions

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
