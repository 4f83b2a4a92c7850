"""Local processes: launcher (`backend`) → host (`host`) → workers (`child`)."""
