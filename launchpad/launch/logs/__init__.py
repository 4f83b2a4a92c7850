"""Log files of workers: their names, and how they are written, rotated and followed."""
