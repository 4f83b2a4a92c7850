"""What launcher and pods send each other: what a pod is given, says, is told, and leaves."""
