"""Writes README.md of this folder: python -m examples.gallery [--run].

Figures come from what an example writes for `--json`, kept beside it as checked.json, lines from its files.
`--run` runs the examples first, all their kills included, and draws the graph of each, kept as graph.svg.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from examples._shared.places import folder_of
from examples.on_digits import table

HERE = Path(__file__).parent
CHECKED = "checked.json"
ON_DIGITS = "on_digits.json"


@dataclass(frozen=True)
class Example:
    """A row of the table.

    Attributes:
        shapes: Of its graph, keys of `SHAPES`.
        source: Year and paper.
        killed: Which workers it survives the loss of.
        shown: What of its claims the table shows, by a part of their text; empty if it takes no `--json`.
        answer: What it checks, if so.
        flags: Whatever else it is run with, after `--quick`.
        is_on_spark: Whether its test runs it on Spark, too.
    """

    name: str
    shapes: tuple[str, ...]
    source: str
    idea: str
    killed: str = "–"
    shown: tuple[str, ...] = ()
    answer: str = ""
    flags: tuple[str, ...] = ()
    is_on_spark: bool = False

    @property
    def folder(self) -> Path:
        """Its folder, seen from the page."""
        return folder_of(self.name).relative_to(HERE)


# Pictures of Mermaid; a shape that no example has yet is left out.
SHAPES = {
    "edge": "a1((visitor)) --> a2[greeter]",
    "star": "b1((worker)) & b2((worker)) & b3((worker)) <--> b4[state]",
    "ring": "c1((rank)) <--> c2((rank)) <--> c3((rank)) <--> c1",
    "chain": "d1[stage] <--> d2[stage] <--> d3[stage]",
    "feed": "e1[feeder] & e2[feeder] --> e3[(queue)] --> e4((rank))",
    "pool": "f1[jobs] <--> f2((worker)) & f3((worker)) & f4((worker))",
    "shuffle": "i1((mapper)) & i2((mapper)) --> i3[reducer] & i4[reducer]",
    "mesh": "g1((executor)) <--> g2((executor)) & g3((executor)) & g4((executor))\n"
    "    g2 <--> g3 & g4\n"
    "    g3 <--> g4",
    "all of it": "h1((actor)) & h2((actor)) --> h3[(replay)] --> h4[learner] --> h5[cacher] --> h1 & h2",
}

EXAMPLES = [
    Example(
        "hello_world",
        ("edge",),
        "",
        "Two nodes, one of which calls the other.",
        answer="the greeting",
        is_on_spark=True,
    ),
    Example(
        "consumer_producers",
        ("pool",),
        "",
        "One node calls several at once, and adds up.",
        answer="the sum",
    ),
    Example(
        "mapreduce",
        ("pool", "shuffle"),
        "2004, [Dean and Ghemawat]"
        "(https://research.google/pubs/mapreduce-simplified-data-processing-on-large-clusters/)",
        "Mappers push what they find straight to the reducer that it belongs to.",
        "mappers, reducers",
        answer="all counts are those of one process",
        is_on_spark=True,
    ),
    Example(
        "es",
        ("pool",),
        "2017, [Salimans et al.](https://arxiv.org/abs/1703.03864)",
        "Evaluators try directions that they make from seeds; all they send is what came of it.",
        shown=("same bits", "balanced"),
    ),
    Example(
        "ps",
        ("star",),
        "2014, [Li et al.](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu)",
        "Shards hold the parameters; workers push gradients to them, in step or each at its own pace.",
        "a shard",
        ("sum of what all workers", "workers in step", "shard was killed"),
        flags=("--kill_shard_at=150",),
        is_on_spark=True,
    ),
    Example(
        "byteps",
        ("star",),
        "2020, [Jiang et al.](https://www.usenix.org/conference/osdi20/presentation/jiang)",
        "Spare machines and workers add up gradients, in shares that make all links equally busy.",
        "a server",
        ("2): workers learn", "2): each machine", "earlier layer", "less logical time", "killed"),
    ),
    Example(
        "angel",
        ("star", "ring"),
        "2018, [Jiang et al.](https://doi.org/10.1093/nsr/nwx018)",
        "Workers pull only weights that occur in their batch; clocks in the shards say who waits for whom.",
        "a shard",
        ("bits that one process", "psFunc costs", "SSP takes less", "killed"),
    ),
    Example(
        "dist_keras",
        ("star",),
        "2017, [Hermans et al.](https://arxiv.org/abs/1710.02368); "
        "2015, [Zhang et al.](https://arxiv.org/abs/1412.6651)",
        "Asynchronous optimizers, each a worker's part and a server's part, around one centre.",
        "the servers",
        (
            "DynSGD, replayed by one process",
            "servers that are killed",
            "stale commits to divide",
            "exchange of AEASGD",
            "AEASGD reads",
        ),
    ),
    Example(
        "elephas",
        ("star",),
        "2015, [Pumperla](https://github.com/danielenricocahall/elephas)",
        "Workers train copies of a model; a driver averages them, or adds what each has changed.",
        "a worker, the driver",
        (
            "averages after each epoch",
            "no update is lost",
            "holds up no other",
            "less updates lost",
        ),
    ),
    Example(
        "determined",
        ("pool",),
        "2018, [Li et al.](https://arxiv.org/abs/1810.05934); "
        "2019, [Determined](https://github.com/determined-ai/determined)",
        "A master gives trials to slots, several to one if need be, and stops those that promise little.",
        "agents, the master",
        (
            "ASHA decides",
            "ASHA finds",
            "bit for bit",
            "preempted save",
            "all its slots",
            "no slot has",
        ),
    ),
    Example(
        "tf_on_spark",
        ("feed",),
        "2017, [Yahoo](https://github.com/yahoo/TensorFlowOnSpark)",
        "Nodes find each other by reservation; feeders push rows into workers' queues, or these read them.",
        "workers, a feeder",
        (
            "once per epoch",
            "64 rows",
            "rows pushed: of",
            "have had enough",
            "one result",
            "absent",
        ),
        is_on_spark=True,
    ),
    Example(
        "horovod",
        ("ring",),
        "2018, [Sergeev and Del Balso](https://arxiv.org/abs/1802.05799); "
        "2009, [Patarasuk and Yuan](https://doi.org/10.1016/j.jpdc.2008.09.002)",
        "Ranks average gradients by all-reduce, in buckets, while backward still makes them.",
        "a rank",
        ("4 ranks gets", "4 ranks learn", "fewer messages", "killed"),
    ),
    Example(
        "zero",
        ("ring",),
        "2020, [Rajbhandari et al.](https://arxiv.org/abs/1910.02054)",
        "Each rank keeps a part of the parameters, gradients and optimizer's state, not a copy.",
        "a rank",
        ("at stage 3 learn", "at stage 3 keeps", "stages 0, 1, 2, 3 send", "killed", "go on from"),
    ),
    Example(
        "tf_replicator",
        ("ring", "star"),
        "2019, [Buchlovsky et al.](https://arxiv.org/abs/1902.00465)",
        "A step written for one device runs on many, in step or by a parameter server.",
        "a replica",
        ("losses of the classifier", "batch norm over", "killed", "mode='async'"),
    ),
    Example(
        "gpipe",
        ("chain",),
        "2019, [Huang et al.](https://arxiv.org/abs/1811.06965)",
        "Micro-batches follow each other through the stages of a network, and back.",
        "a stage",
        ("K=4: gradients", "K=4: stages wait", "K=4: computed again", "killed"),
    ),
    Example(
        "pipedream",
        ("chain", "ring"),
        "2019, [Narayanan et al.](https://doi.org/10.1145/3341301.3359646)",
        "A planner cuts the network; its stages never wait, and keep old weights for what is on its way.",
        "a stage",
        ("planner finds", "K − k versions", "busy", "killed"),
    ),
    Example(
        "big_dl",
        ("mesh",),
        "2019, [Dai et al.](https://arxiv.org/abs/1804.05839); "
        "2017, [Venkataraman et al.](https://doi.org/10.1145/3132747.3132750)",
        "Tasks of two short jobs an iteration exchange blocks and keep nothing; what is lost is made again.",
        "executors",
        (
            "learn what one process",
            "of 4 executors gets",
            "N/k calls",
            "change no bit",
            "run again",
            "int8",
        ),
    ),
    Example(
        "acme",
        ("all of it",),
        "2020, [Hoffman et al.](https://arxiv.org/abs/2006.00979)",
        "An agent is an actor and a learner: the same classes in one process, and in many.",
        "the learner, five times",
        ("dqn, alone", "dqn, spread", "is sampled 16 times", "learner killed", "impala, spread"),
        flags=("--noquick",),  # five seeds, to 475: what solved means, and no test has time for
    ),
]


def page() -> str:
    """Return the text of README.md."""
    names: dict[str, list[str]] = {shape: [] for shape in SHAPES}
    for example in EXAMPLES:
        for shape in example.shapes:
            names[shape].append(example.name)
    subgraphs = [
        f'  subgraph {shape.replace(" ", "-")}s["{shape}: {", ".join(names[shape])}"]\n    {edges}\n  end'
        for shape, edges in SHAPES.items()
        if names[shape]
    ]
    rows = [
        f"| [{each.name}]({each.folder})<br>{each.source} | {each.idea} | {lines(each)} | {checked(each)}"
        f" | {each.killed} | {', '.join(backends(each))} |"
        for each in EXAMPLES
    ]
    graphs = [
        f"### [{each.name}]({each.folder})\n{each.idea}\n\n"
        f"![The graph of {each.name}]({each.folder}/graph.svg)\n"
        for each in EXAMPLES
    ]
    on_digits = table(json.loads((HERE / ON_DIGITS).read_text()))
    return PAGE.format(
        subgraphs="\n".join(subgraphs),
        rows="\n".join(rows),
        on_digits=on_digits,
        graphs="\n".join(graphs).rstrip(),
    )


def lines(example: Example) -> str:
    """Return how long algorithm, program and all of it are."""
    lengths = {
        file.name: file.read_bytes().count(b"\n") for file in folder_of(example.name).glob("*.py")
    }
    parts = (lengths.get("algorithm.py", "–"), lengths["program.py"], sum(lengths.values()))
    return " / ".join(map(str, parts))


def checked(example: Example) -> str:
    """Return what the last run has printed of the claims that are shown, and how many there were."""
    file = folder_of(example.name) / CHECKED
    if not example.shown:
        return example.answer
    claims = json.loads(file.read_text())
    cells = []
    for part in example.shown:
        found = [claim for claim in claims if part in claim["claim"]]
        if not found:
            raise LookupError(
                f"{file} has no claim with {part!r}; make gallery runs {example.name}"
            )
        cells.append(f"{found[-1]['claim']}: **{found[-1]['measured']}**")
    return "<br>".join([*cells, f"({len(claims)} claims in all)"])


def backends(example: Example) -> list[str]:
    """Return those on which its test, tests/examples/test_runs.py, runs it."""
    everywhere = ["threads", "processes", "Ray", "Kubernetes"]
    return [*everywhere, "Spark"] if example.is_on_spark else everywhere


def run(*command: str) -> None:
    """Run a module of these as processes."""
    subprocess.run([sys.executable, "-m", *command, "--lp_launch_type=local_mp"], check=True)


PAGE = """\
# Examples

Each checks its own answer. Those in `systems/` are systems of papers, and show that the papers' claims hold,
also when a worker is killed. `algorithm.py` is the method, and knows nothing of launchpad; `program.py` is
the graph.

```sh
.venv/bin/python -m examples.systems.horovod --quick --lp_launch_type=local_mp
```

`make gallery` makes this page: it runs the examples, as processes. What is in bold they have printed, with
`--quick`; acme without.

## By the shape of their graphs

```mermaid
graph LR
{subgraphs}
```

## All

Lines are those of `algorithm.py` / `program.py` / all files; backends those on which its test runs it.

| example, year and paper | the idea | lines | what a machine has checked | survives the kill of | backends |
|---|---|---|---|---|---|
{rows}

## One problem, by eight systems

`python -m examples.on_digits` has each train softmax regression with four workers, on the same batches:
undisturbed, and with a kill half-way. gpipe has three layers more, as one makes no pipeline. Bytes are all
that goes over edges. Staleness is how many updates of others came between what a worker got and its own: a
gradient each, of dist_keras some steps; 0 where workers are in step. "From one process" is how far the
parameters are from what one process learns from whole batches, for the length of these. It says how alike,
and not how good: by the rules of dist_keras, and where elephas adds changes, the steps are larger than
those of a mean.

{on_digits}

## Their graphs
Of the largest program that each launches, as `launchpad graph` draws it.

{graphs}
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="run the examples first")
    if parser.parse_args().run:
        for each in EXAMPLES:
            checks = [f"--json={folder_of(each.name) / CHECKED}", "--quick", *each.flags]
            run("examples._shared.drawn", each.name, *(checks if each.shown else ()))
        run("examples.on_digits", f"--json={HERE / ON_DIGITS}")
    (HERE / "README.md").write_text(page())
