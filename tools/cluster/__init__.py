"""The embedded cluster: a real control plane and real kubelets on simulated machines, in one network namespace of its own.

    python -m tools.cluster up --nodes machines.json
    kubectl --kubeconfig .state/cluster/kubeconfig get nodes

How it is built, the form of the machine set and what runs as a real process: README.md beside this file.
"""
