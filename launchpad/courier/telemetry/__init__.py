"""What calls cost, as they are made: counters, statistics, spans."""
