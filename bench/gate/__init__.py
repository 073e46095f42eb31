"""The regression gate: rules as they are now against a baseline of what they predicted and took.

Accuracy. A rule is judged cell by cell (net, input, noise), and by its worst cell.

======================================================  ============================  ==========
what is seen of a rule without seeds                    status                        verdict
======================================================  ============================  ==========
all numbers equal                                       unchanged                     passed
drift of the moments up to 1e-3                         rounding                      passed
more                                                    changed                       changed
======================================================  ============================  ==========

======================================================  ============================  ==========
and of a sampling rule                                  status                        verdict
======================================================  ============================  ==========
drift under the baseline's seeds up to 1e-3             unchanged or rounding         passed
more, of the same draws                                 changed                       changed
more; under fresh seeds nothing shown                   other draws                   passed
more; error shown to be larger, by a practical size     worse                         regression
more; other moments shown, by more than 1e-3            changed                       changed
more; error alone shown to be smaller                   better                        passed
======================================================  ============================  ==========

Drift is `answers.drift`. It decides alone for a rule without seeds, which says the same every day: what
it says now is another law, and whether that is meant is no question of statistics. A mistake may bring a
biased rule nearer to the truth. So every change stops the gate, ``--update`` accepts it, and the divergence
from the moments of a fresh oracle, then and now, is said to help decide.

"Shown" means at level 1 % after Holm's correction over all tests of the run, half of the level for those of
all cells together, under fresh seeds against the baseline's draws and fresh oracles (`comparisons.sampling`).
Cells without an oracle (`probes`) have no error; all else is seen there, too, and a law where there was none
is "changed".

Why a rule does not pass is said in one line, from all that was found of it (`causes`).

A rule that is not in the baseline is refused, unless new ones are allowed. One that is only there, though all
are asked for, stops the gate; one that cannot be run or timed fails. A verdict in which nothing was compared
does not pass.

Speed. See `comparisons.speed`. Recorded oracles. See `oracles.verify`. Exit codes: `verdict.exit_code`.
"""
