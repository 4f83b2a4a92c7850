"""Runs without a launcher in this process: detached, or left by a launcher that was killed."""
