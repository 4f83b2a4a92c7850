"""Carriers: the ways in which calls reach a server. One file each."""
