"""Readers of what machines print: matrices, tables, state files and logs; nothing is added to what the text holds."""
