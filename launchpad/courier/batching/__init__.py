"""One call of a method that answers many callers."""
