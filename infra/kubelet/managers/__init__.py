"""The topology manager and its hint providers: CPU, memory and device manager."""
