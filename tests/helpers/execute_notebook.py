"""Run as a script: executes the cells that stdin gives as JSON in a kernel; prints the outputs of each."""

from __future__ import annotations

import json
import sys

import nbclient
import nbformat


def main() -> None:
    cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3", allow_errors=True
    ).execute()
    json.dump([cell.outputs for cell in notebook.cells], sys.stdout)


if __name__ == "__main__":
    main()
