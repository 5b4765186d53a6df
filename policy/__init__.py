"""Rules for what any program may declare on a GPU cluster, as pure functions over a resource's type and properties."""
