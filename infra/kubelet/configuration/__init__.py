"""The kubelet's configuration: its fields, how it is decoded, merged from base, drop-ins and flags, and validated."""
