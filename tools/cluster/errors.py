"""What the cluster manager can refuse or fail at, as one sentence with an exit status."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster could not be brought where it was asked to be."""

    exit_status = 1


class InputError(ClusterError):
    """The machine set or an argument is wrong."""

    exit_status = 2


class MissingError(ClusterError):
    """This machine cannot run the cluster: not Linux, not root, or a program is missing."""

    exit_status = 3
