"""BytePS: spare machines add up gradients, in shares so that all machines' links are equally busy."""
