"""ZeRO: ranks train one network together. Each keeps a part of the state, and not a copy of all of it."""
