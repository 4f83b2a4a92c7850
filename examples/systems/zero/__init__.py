"""ZeRO: ranks train one network together, and each keeps a part of what all would keep copies of."""
