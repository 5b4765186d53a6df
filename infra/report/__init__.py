"""Presenters: a plan, an estimate, a machine for people and for machines. Nothing is decided here."""
