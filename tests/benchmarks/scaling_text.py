"""Words of the page of `scaling`: what is assumed, what is left out, how to read the tables."""

from __future__ import annotations

__all__ = [
    "ADVICE",
    "CONCLUSION",
    "EXACT",
    "INTRODUCTION",
    "NOT_SIMULATED",
    "PASSES",
    "REAL",
    "REPEAT",
    "STREAM",
    "TRANSIT",
    "WHY_EXACT",
    "WHY_STREAM",
]

INTRODUCTION = """\
# Large fits on clusters

Written by `python -m tests.benchmarks.scaling`; change the program, not this page.

How long would a fit take on a cluster that is not here, what would it wait for, and what does the planner say? The
numbers come from a simulation: every task of a pass is given out by a scheduler that does one thing after another,
fetches what it takes from others through its worker's link, waits for a thread, works, and reports. The tasks are
those of the program: runs of tiles, sums of each segment of rows in a chain along the block rows, spans in waves,
sums of spans in one chain. What a task costs was measured, or is assumed, as the table says.

64 features, ten components, RBF in float32; workers of four threads each.

"""

PASSES = "measured: CPU of its process, passes of up to 10 000 runs of tiny tiles on two workers"

TRANSIT = "measured: CPU of both processes, 64 blocks of 1 MiB to two workers and back"

NOT_SIMULATED = """\

Not simulated: what leaves a worker (it is as much as comes in, but from a few workers when all of them want the same
value); a shared file system, which has to deliver the rows of an exact fit to every worker once, 2.6 TB for ten
million rows and a thousand workers; two workers on one machine, which share its link; more work of the scheduler for
more workers; lost workers; memory. Real times will be longer. The scheduler's
numbers depend on its machine: with more to do beside, this one took 0.50 ms a task and 100 µs a value.
"""

REAL = """\
Client, scheduler and both workers share two processors there, and what messages and waking up take is only in the
measured seconds; on a cluster each has its own. The simulation is a lower bound that comes this near."""

EXACT = """\
Tiles are evaluated again in every pass. A tile is so many rows, a run so many tiles. "Values taken" are what the
tasks of a pass take from one another. "Home by the planner" is what `gram: auto` takes, with its time where it is
another one. "Planned" is the planner's time of the fit, "fit" the simulated one: passes, start block, and what the
client does alone beside them, which is the copy of the rows and orthogonalisation. The bottleneck is the resource
that is busy for the largest share of the fit; where no share is near 100 %, others take turns with it. A ratio beyond
1.5 in either direction is in bold."""

WHY_EXACT = """\
Where the simulation is slower than the plan by more than 1.5, the plan leaves out what grows with the cluster or with
the width of a run:

* The planner counts 1.3 ms of the scheduler for each run. The scheduler also deals with the sums, about as many tasks
  as there are runs, and with every value that a task takes. A run of w tiles takes w or w + 1 blocks of vectors, so
  that wider runs make fewer tasks but not fewer values: there is one for each tile.
* The product of a run goes whole to each sum that takes a part of it: to that of its own rows, and to those of one or
  two segments. A segment is as wide as a run, or wider: wider runs make fewer chains of sums, and each carries more.
* Client and scheduler make and take in the graph before the first task runs, and pass the results on after the last
  one. The workers wait meanwhile.
"""

STREAM = """\
`memory_limit` 16 GiB a process. Rows come from a store that is as fast as each worker's link. The look, with which
every fit begins, goes in waves of 32 spans whatever the cluster; sums and scores in waves by the plan. Each wave ends
before the next one begins. A sum is m × m numbers in float64; sums are added in the order of the spans, each by the
worker that has the newer one. Scores are ten numbers and an id a row: they come to the client, which writes them
between two waves."""

WHY_STREAM = """\
What the planner leaves out here is the chain of sums. Each step fetches a matrix and adds it, 8 MB with 1000
landmarks, 72 MB with 3000, and none runs beside another. With a thousand workers spans are smaller, and the chain is
longer.
"""

CONCLUSION = """\
## What follows

A cluster pays as long as w times more workers make a fit at least √w times faster: tripling them has to save two
fifths of the time. The columns show the largest of the clusters above that pays, and the bottleneck of the next one.

"""

ADVICE = """\
What can be done:

* Take no more workers than that. What limits beyond it is serial, and no number of workers helps.
* Where the chain of sums limits, a network of 10 GB/s helps; where the scheduler limits, it hardly does.
* Rows of more features make tiles worth more work, with the same tasks and vectors: then more workers pay.
* Ten million rows are hours for an exact fit on a hundred workers, and much memory for each process. See first
  whether a Nyström fit of them leaves out less than matters, which its certificate says: it takes a hundred times as
  many rows in less time.
* Where the client limits a Nyström fit, it is by the scores, which all come to it and are written by it.
"""

REPEAT = """\
## To repeat

```bash
python -m tests.benchmarks.scaling > docs/scaling.md
python -m tests.benchmarks.scaling --measure  # the constants, on this machine; they are recorded in scaling_costs.py
```
"""
