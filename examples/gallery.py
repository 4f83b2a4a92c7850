"""Write README.md of this folder: python -m examples.gallery [--run].

Each example writes its figures with `--json` to a file checked.json beside it; this page shows them. Numbers
of lines are counted in its files. `--run` runs all examples first, including their kills, and draws the graph
of each as graph.svg.
"""

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples._shared.places import folder_of
from examples.on_digits import HEAD, table

HERE = Path(__file__).parent
CHECKED = "checked.json"
RESULT = "result.svg"
ON_DIGITS = "on_digits.json"
WIDTH = 100


@dataclass(frozen=True)
class Example:
    """An example, with a row in the table and a section of its own.

    Attributes:
        shapes: The shapes of its graph, keys of `SHAPES`.
        source: Year and paper.
        killed: The workers whose loss it survives.
        shown: The claims that the page shows, by a part of their text; empty if it takes no `--json`.
        answer: What it checks, if it takes no `--json`.
        flags: The flags of its run after `--quick`.
        is_on_spark: True if its test also runs it on Spark.
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
        """The folder of the example, as seen from the page."""
        return folder_of(self.name).relative_to(HERE)


# Pictures of Mermaid. The page leaves out shapes that no example has yet.
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
        "One node calls several at once, and adds up their answers.",
        answer="the sum",
    ),
    Example(
        "mapreduce",
        ("pool", "shuffle"),
        "2004, [Dean and Ghemawat]"
        "(https://research.google/pubs/mapreduce-simplified-data-processing-on-large-clusters/)",
        "Mappers push the counts of each word straight to its reducer.",
        "mappers, reducers",
        ("one owner", "counts agree"),
        flags=(f"--input={HERE}", "--pattern=*.md"),  # which every pod has
        is_on_spark=True,
    ),
    Example(
        "es",
        ("pool",),
        "2017, [Salimans et al.](https://arxiv.org/abs/1703.03864)",
        "Evaluators rebuild random directions from seeds, try them, and send back only the returns.",
        "an evaluator",
        ("same bits", "balanced", "killed"),
    ),
    Example(
        "ps",
        ("star",),
        "2014, [Li et al.](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu)",
        "Shards hold the parameters. Workers push gradients to them, in step or each at its own pace.",
        "a shard",
        ("the workers say", "workers in step", "shard was killed"),
        flags=("--kill_shard_at=150",),
        is_on_spark=True,
    ),
    Example(
        "byteps",
        ("star",),
        "2020, [Jiang et al.](https://www.usenix.org/conference/osdi20/presentation/jiang)",
        "Spare machines and workers add up gradients, in shares that keep all links equally busy.",
        "a server",
        ("2): workers learn", "2): each machine", "earlier layer", "less logical time", "killed"),
    ),
    Example(
        "angel",
        ("star", "ring"),
        "2018, [Jiang et al.](https://doi.org/10.1093/nsr/nwx018)",
        "Workers pull only the weights that occur in their batch. Clocks in the shards decide which worker"
        " waits for which.",
        "a shard",
        ("is killed", "psFunc costs", "with stragglers", "overlaps"),
    ),
    Example(
        "dist_keras",
        ("star",),
        "2017, [Hermans et al.](https://arxiv.org/abs/1710.02368); "
        "2015, [Zhang et al.](https://arxiv.org/abs/1412.6651)",
        "Asynchronous optimizers, each with a worker's part and a server's part, around one centre.",
        "the servers",
        (
            "DynSGD does what",
            "servers that are killed",
            "DynSGD has stale commits",
            "EAMSGD does what",
            "AEASGD recognises",
        ),
        is_on_spark=True,
    ),
    Example(
        "elephas",
        ("star",),
        "2015, [Pumperla](https://github.com/danielenricocahall/elephas)",
        "Workers train copies of a model. A driver averages them, or adds their differences.",
        "a worker, the driver",
        (
            "averages after each epoch",
            "no update is lost",
            "some updates are lost",
            "synchronous: the kill",
        ),
        is_on_spark=True,
    ),
    Example(
        "determined",
        ("pool",),
        "2018, [Li et al.](https://arxiv.org/abs/1810.05934); "
        "2019, [Determined](https://github.com/determined-ai/determined)",
        "A master assigns one or more slots to each trial, and stops trials that promise little.",
        "agents, the master",
        (
            "asha stops",
            "ASHA finds",
            "bit for bit",
            "a more urgent",
            "all its slots",
        ),
    ),
    Example(
        "tf_on_spark",
        ("feed",),
        "2017, [Yahoo](https://github.com/yahoo/TensorFlowOnSpark)",
        "Nodes find each other through a reservation server. Feeders push rows into the workers' queues, or"
        " the workers read the rows themselves.",
        "workers, a feeder",
        (
            "once per epoch",
            "64 rows",
            "push the rows, at least",
            "need no more rows",
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
        "Ranks average gradients by all-reduce, in buckets, while backward still computes others.",
        "a rank",
        ("4 ranks gets", "4 ranks learn", "fewer messages", "other gradients", "killed"),
    ),
    Example(
        "zero",
        ("ring",),
        "2020, [Rajbhandari et al.](https://arxiv.org/abs/1910.02054)",
        "Each rank keeps only a part of the parameters, gradients and optimizer's state.",
        "a rank",
        ("at stage 3 learn", "at stage 3 keeps", "stages 0, 1, 2, 3 send", "killed", "go on from"),
    ),
    Example(
        "tf_replicator",
        ("ring", "star"),
        "2019, [Buchlovsky et al.](https://arxiv.org/abs/1902.00465)",
        "A step written for one device runs on many, in step or with a parameter server.",
        "a replica",
        ("losses are the same", "of a serial program", "killed", "mode='async'"),
    ),
    Example(
        "gpipe",
        ("chain",),
        "2019, [Huang et al.](https://arxiv.org/abs/1811.06965)",
        "Micro-batches follow each other through the stages of a network, and back.",
        "a stage",
        ("K=4: gradients", "K=4: stages wait", "K=4: a stage keeps", "killed"),
    ),
    Example(
        "pipedream",
        ("chain", "ring"),
        "2019, [Narayanan et al.](https://doi.org/10.1145/3341301.3359646)",
        "A planner cuts the network. Its stages never wait, and keep old weights for the minibatches in"
        " flight.",
        "a stage",
        ("planner finds", "K − k versions", "logical time", "killed"),
    ),
    Example(
        "big_dl",
        ("mesh",),
        "2019, [Dai et al.](https://arxiv.org/abs/1804.05839); "
        "2017, [Venkataraman et al.](https://doi.org/10.1145/3132747.3132750)",
        "In each iteration, the tasks of two short jobs exchange blocks. Tasks keep nothing, and lost blocks"
        " are made again.",
        "executors",
        (
            "learn what one process",
            "of 4 executors gets",
            "N/k calls",
            "change no bit",
            "run again",
        ),
        is_on_spark=True,
    ),
    Example(
        "acme",
        ("all of it",),
        "2020, [Hoffman et al.](https://arxiv.org/abs/2006.00979)",
        "An agent is an actor and a learner: the same classes in one process and in many.",
        "the learner",
        (
            "dqn, alone: the mean",
            "dqn, spread: the mean",
            "dqn, spread: the gradients",
            "dqn, spread: at every moment",
            "dqn: a killed learner",
            "impala, spread: the mean",
        ),
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
        f"| [{each.name}]({each.folder}) | {lines(each)} | {each.killed} | {', '.join(backends(each))} |"
        for each in EXAMPLES
    ]
    compared = json.loads((HERE / ON_DIGITS).read_text())
    return PAGE.format(
        subgraphs="\n".join(subgraphs),
        rows="\n".join(rows),
        results=columns(compared, 0, 1, 4, 5),
        costs=columns(compared, 0, 2, 3),
        sections="\n\n".join(map(section, EXAMPLES)),
    )


def columns(rows: Sequence[Sequence[str]], *numbers: int) -> str:
    """Return some columns of the comparison on digits as a table of Markdown."""
    return table(*([row[number] for number in numbers] for row in (HEAD, *rows)))


def section(example: Example) -> str:
    """Return the section of one example: its idea, source, checks and graph."""
    parts = [
        f"### [{example.name}]({example.folder})\n{wrapped(example.idea)}",
        wrapped(f"Source: {example.source}") if example.source else "",
        checked(example),
        f"![The graph of {example.name}]({example.folder}/graph.svg)",
        picture(example),
    ]
    return "\n\n".join(filter(None, parts))


def picture(example: Example) -> str:
    """Return the picture of the example's result; empty if it draws none."""
    if not (folder_of(example.name) / RESULT).is_file():
        return ""
    return f"![The result of {example.name}]({example.folder}/{RESULT})"


def wrapped(text: str, first: str = "") -> str:
    """Break a paragraph or, with `first`, a list item into lines."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def lines(example: Example) -> str:
    """Return the lengths of the algorithm, the program and all files."""
    lengths = {
        file.name: file.read_bytes().count(b"\n") for file in folder_of(example.name).glob("*.py")
    }
    parts = (lengths.get("algorithm.py", "–"), lengths["program.py"], sum(lengths.values()))
    return " / ".join(map(str, parts))


def checked(example: Example) -> str:
    """Return the results of the last run for the claims that the page shows, and the number of all claims."""
    file = folder_of(example.name) / CHECKED
    if not example.shown:
        return f"Checked: {example.answer}."
    claims = json.loads(file.read_text())
    items = []
    for part in example.shown:
        matches = [claim for claim in claims if part in claim["claim"]]
        if not matches:
            raise LookupError(
                f"{file} has no claim with {part!r}; make gallery runs {example.name}"
            )
        last = matches[-1]
        items.append(wrapped(f"{last['claim']}: **{last['measured']}**", "- "))
    total = f"Checked, {len(items)} of {len(claims)} claims:"
    return "\n".join([total, "", *items])


def backends(example: Example) -> list[str]:
    """Return the backends on which its test, tests/examples/test_runs.py, runs it."""
    everywhere = ["threads", "processes", "Ray", "Kubernetes"]
    return [*everywhere, "Spark"] if example.is_on_spark else everywhere


def run(*command: str) -> None:
    """Run one of the modules of this package as processes."""
    subprocess.run([sys.executable, "-m", *command, "--lp_launch_type=local_mp"], check=True)


PAGE = """\
# Examples

Each example checks its own answer. Those in `systems/` reimplement systems that papers describe,
and show that the papers' claims hold, even if a worker is killed. `algorithm.py` is the method,
without launchpad. `program.py` is the graph.

```sh
.venv/bin/python -m examples.systems.horovod --quick --lp_launch_type=local_mp
```

`make gallery` runs the examples as processes, and writes this page. The text in bold is what the
examples printed. They ran with `--quick`. If a claim says that parameters have
"the same bits", they are equal bit for bit.

## By the shape of their graphs

```mermaid
graph LR
{subgraphs}
```

## All

The lines are those of `algorithm.py` / `program.py` / all files. The backends are those on which
the example's test runs it.

| example | lines | survives the kill of | backends |
|---|---|---|---|
{rows}

## One problem, by eight systems

`python -m examples.on_digits` compares eight systems. Each trains softmax regression with four
workers, on the same batches: once undisturbed, and once with a kill half-way. gpipe has three more
layers, because one layer makes no pipeline.

{results}

"From one process" compares the parameters with those that one process learns from whole batches: it
is the distance between the two vectors, divided by the length of the one process's vector. It says
how similar the parameters are, not how good. It is large for dist_keras, and for elephas where it
adds differences, because their steps are larger than the steps of a mean.

{costs}

Bytes are all bytes that go over edges. Staleness is the number of updates by others between a
worker's pull and its own update. An update is one gradient, or some steps for dist_keras. Staleness
is 0 if workers are in step.

## Each example
The graphs are those of the largest program that each example launches, as `launchpad graph` draws
them.

{sections}
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="run the examples first")
    if parser.parse_args().run:
        for each in EXAMPLES:
            checks = [
                f"--json={folder_of(each.name) / CHECKED}",
                f"--picture={folder_of(each.name) / RESULT}",
                "--quick",
                *each.flags,
            ]
            run("examples._shared.drawn", each.name, *(checks if each.shown else ()))
        run("examples.on_digits", f"--json={HERE / ON_DIGITS}")
    (HERE / "README.md").write_text(page())
