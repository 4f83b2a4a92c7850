"""Log files of workers: how they are named, written, rotated and followed."""
