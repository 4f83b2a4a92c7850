"""From a program to a plan: pure, nothing is started."""
