"""Our claims about speed, for anyone to measure. Each file here is a script: see its first lines."""
