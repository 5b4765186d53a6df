"""What the cluster holds (read only), and whether it contradicts the plan."""
