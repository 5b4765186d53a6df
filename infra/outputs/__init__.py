"""Readers of what machines print: matrices, tables, state files and logs; each text read for what it says, nothing invented."""
