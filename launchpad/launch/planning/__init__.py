"""The way from a program to a plan. It is pure: nothing is started."""
