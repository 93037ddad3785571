"""Golden answers: what the package answers today, in numbers, so that rebuilding its inside changes none of them.

    make.py            python -m tests.golden.make [NAME...]   makes the answers that are missing
    adapter.py         the one file that knows the package's names; a renamed verb changes it and nothing else here
    cases/             agents.py and totals.py list the cases in a vocabulary of their own
    world.py           the plain worlds in which agents are asked and told, written out here
    rounds.py          the rounds of an agent: late, missing, lost and overridden outcomes, drift, previews, resumes
    numbers.py         the text form of recorded numbers, and how they are compared
    answers/           the recorded answers, one file a case
    study_*, tools_*   the same for studies and tools

What is golden: advised settings, the numbers behind them, evidence, stops, counts of violations, rewards, regret. What
is not: names of keys, wording, the files that the package writes.

**When a number may change.** Only where behaviour is meant to change, in a commit of its own that says why:
`python -m tests.golden.make --replace NAME` writes that answer anew; without it nothing recorded is overwritten. A
rename, a move or a faster form is no reason. A case may go when the option that it is about is retired.

**Tolerance.** Numbers agree within 1e-9, absolute or relative, whichever allows more; a logarithm stands for evidence.
Discrete choices (a level, a sign, a rank, a stop) must not hang on rounding: `make` plays each case again with inputs
that differ in the twelfth digit, and refuses a case whose answers differ by more than the tolerance; and with inputs
that differ in the eighth digit, where no choice may change. Such a case needs another seed.
"""
