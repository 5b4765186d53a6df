"""What the make targets do."""
