"""The paper's linear analysis: the problem, projected ERM and RCAD, closed forms, checks of every lemma, sweeps."""
