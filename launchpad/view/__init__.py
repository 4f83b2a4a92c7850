"""What is seen of a program that runs, again and again: for a terminal."""
