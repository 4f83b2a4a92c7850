"""Look at this host: what it has, which launch types can run here, and what is missing for the others.

The exit code is 1 if the default launch type cannot run a program.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from launchpad.cli import host_facts, launch_checks
from launchpad.cli.runs import CommandError
from launchpad.courier.formatting import aligned
from launchpad.launch import registry

ARGUMENTS = {"--json": {"action": "store_true", "help": "for programs to read"}}


def run(options: argparse.Namespace) -> None:
    """Prints two tables, with the next step where something is missing."""
    facts, checks = host_facts.facts(), launch_checks.checks()
    default = registry.launch_type_name(None)
    if options.json:
        found = {
            "host": [asdict(fact) for fact in facts],
            "launch_types": [asdict(check) for check in checks],
            "default": default,
        }
        print(json.dumps(found, indent=2))
    else:
        rows = [(fact.name, fact.found) for fact in facts]
        print(*aligned(rows), "", sep="\n")
        header = ("LAUNCH TYPE", "", "HERE")
        table = [
            (
                c.launch_type + " (default)" * (c.launch_type == default),
                "ok" if c.can_run else "no",
                c.found,
            )
            for c in checks
        ]
        print(*aligned([header, *table]), sep="\n")
        advice = [(fact.name, fact.advice) for fact in facts if fact.advice]
        advice += [(check.launch_type, check.next_step) for check in checks if check.next_step]
        if advice:
            print("", *aligned([("FOR", "DO"), *advice]), sep="\n")
    failed = next((c for c in checks if c.launch_type == default and not c.can_run), None)
    if failed is not None:
        raise CommandError(f"launch type {default!r}, the default, cannot run here: {failed.found}")
