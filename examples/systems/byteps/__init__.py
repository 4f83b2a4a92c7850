"""BytePS: spare machines add up gradients, in such shares that all machines' links are equally busy."""
