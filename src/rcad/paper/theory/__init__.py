"""The paper's linear analysis: the problem, projected ERM and RCAD, closed forms, checks of every lemma, sweeps.

`python -m rcad.paper.theory --help` computes all of it.
"""

from rcad.paper.theory.lemmas import conditions
from rcad.paper.theory.population import Setting, population_gradient, population_surrogate
from rcad.paper.theory.problem import Problem, Sample, erm_step, rcad_step, trajectory
from rcad.paper.theory.simulation import Settings, Trajectories, run_trajectories

__all__ = [
    "Problem",
    "Sample",
    "Setting",
    "Settings",
    "Trajectories",
    "conditions",
    "erm_step",
    "population_gradient",
    "population_surrogate",
    "rcad_step",
    "run_trajectories",
    "trajectory",
]
