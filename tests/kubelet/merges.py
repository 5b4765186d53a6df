"""Base files, drop-ins and flags whose merge by the kubelet's own code is recorded."""

from __future__ import annotations

from typing import Any

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def _base(text: str = "") -> str:
    return HEADER + text


STATIC = _base("cpuManagerPolicy: static\nkubeReserved: {cpu: 500m, memory: 1Gi}\n")
SCENARIOS: dict[str, dict[str, Any]] = {
    "base alone": {"base": STATIC, "dropins": None, "flags": []},
    "base without thresholds gets the default ones": {"base": _base(), "dropins": None, "flags": []},
    "base with one threshold has no other": {
        "base": _base("evictionHard: {memory.available: 500Mi}\n"),
        "dropins": None,
        "flags": [],
    },
    "merged default thresholds": {
        "base": _base("evictionHard: {memory.available: 500Mi}\nmergeDefaultEvictionSettings: true\n"),
        "dropins": None,
        "flags": [],
    },
    "no base, no drop-ins": {"base": None, "dropins": None, "flags": ["--max-pods=20"]},
    "no base, one drop-in": {"base": None, "dropins": {"10-a.conf": _base("maxPods: 7\n")}, "flags": []},
    "empty drop-in directory": {"base": STATIC, "dropins": {"README": "x"}, "flags": []},
    "maps merge by key": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("kubeReserved: {memory: 2Gi, pid: '100'}\nsystemReserved: {cpu: '1'}\n")},
        "flags": [],
    },
    "a drop-in threshold adds to the default ones": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("evictionHard: {memory.available: 500Mi}\n")},
        "flags": [],
    },
    "mergeDefaultEvictionSettings in a drop-in comes too late": {
        "base": _base("evictionHard: {memory.available: 1Gi}\n"),
        "dropins": {"10-a.conf": _base("mergeDefaultEvictionSettings: true\n")},
        "flags": [],
    },
    "empty thresholds of the base stay empty": {
        "base": _base("evictionHard: {}\n"),
        "dropins": {"10-a.conf": _base("maxPods: 3\n")},
        "flags": [],
    },
    "lists replace": {
        "base": _base("reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 1Gi}}]\n"),
        "dropins": {"10-a.conf": _base("reservedMemory: [{numaNode: 1, limits: {memory: 1124Mi}}]\n")},
        "flags": [],
    },
    "quantities of the base become canonical": {
        "base": _base("reservedMemory: [{numaNode: 0, limits: {memory: 1.5Gi}}]\n"),
        "dropins": {"10-a.conf": _base("maxPods: 3\n")},
        "flags": [],
    },
    "null deletes a key": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("kubeReserved: {cpu: null}\nevictionHard: {nodefs.available: null}\n")},
        "flags": [],
    },
    "null deletes a field": {"base": STATIC, "dropins": {"10-a.conf": _base("cpuManagerPolicy: null\n")}, "flags": []},
    "null deletes all thresholds": {"base": STATIC, "dropins": {"10-a.conf": _base("evictionHard: null\n")}, "flags": []},
    "later files win": {
        "base": STATIC,
        "dropins": {"20-b.conf": _base("maxPods: 20\n"), "10-a.conf": _base("maxPods: 10\n"), "9-c.conf": _base("maxPods: 9\n")},
        "flags": [],
    },
    "sub-folders take part in order of their names": {
        "base": STATIC,
        "dropins": {
            "10-a.conf": _base("maxPods: 10\n"),
            "10-a/99.conf": _base("maxPods: 99\n"),
            "05/z.conf": _base("maxPods: 5\n"),
        },
        "flags": [],
    },
    "backups with another suffix are skipped": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("maxPods: 10\n"), "20-a.conf.bak": _base("maxPods: 1\n"), "30.yaml": _base("maxPods: 2\n")},
        "flags": [],
    },
    "an empty list of the base is the default after a merge": {
        "base": _base("enforceNodeAllocatable: []\n"),
        "dropins": {"10-a.conf": _base("maxPods: 3\n")},
        "flags": [],
    },
    "names of drop-in fields match in any case": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("topologymanagerpolicy: restricted\n")},
        "flags": [],
    },
    "unknown fields of a drop-in are ignored": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("reservedCpus: 0-1\nmaxPods: 4\n")},
        "flags": [],
    },
    "unknown fields of the base are ignored": {"base": _base("reservedCpus: 0-1\nmaxPods: 4\n"), "dropins": None, "flags": []},
    "parallel pulls in the base switch serial ones off": {
        "base": _base("maxParallelImagePulls: 5\n"),
        "dropins": None,
        "flags": [],
    },
    "parallel pulls in a drop-in do not": {
        "base": _base(),
        "dropins": {"10-a.conf": _base("maxParallelImagePulls: 5\n")},
        "flags": [],
    },
    "a longer status update lengthens the report": {
        "base": _base("nodeStatusUpdateFrequency: 20s\n"),
        "dropins": None,
        "flags": [],
    },
    "a report of its own stays": {
        "base": _base("nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m\n"),
        "dropins": None,
        "flags": [],
    },
    "a report without an update stays": {"base": _base("nodeStatusReportFrequency: 1m\n"), "dropins": None, "flags": []},
    "one parallel pull is a serial one": {"base": _base("maxParallelImagePulls: 1\n"), "dropins": None, "flags": []},
    "half of the access rules": {
        "base": _base(
            "authentication: {anonymous: {enabled: true}, webhook: {cacheTTL: 1m}}\nauthorization: {webhook: {cacheAuthorizedTTL: 1m}}\n"
        ),
        "dropins": None,
        "flags": [],
    },
    "the other half of the access rules": {
        "base": _base(
            "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow, webhook: {cacheUnauthorizedTTL: 1m}}\n"
        ),
        "dropins": None,
        "flags": [],
    },
    "gates decide on defaults": {
        "base": _base("featureGates: {KubeletCrashLoopBackOffMax: false, KubeletEnsureSecretPulledImages: false}\n"),
        "dropins": None,
        "flags": [],
    },
    "zero is the default": {
        "base": _base("maxPods: 0\nsyncFrequency: 0s\nhairpinMode: ''\nhealthzPort: 0\nfailSwapOn: false\n"),
        "dropins": None,
        "flags": [],
    },
    "nested structs merge": {
        "base": _base("authentication: {webhook: {enabled: false}}\n"),
        "dropins": {"10-a.conf": _base("authentication: {anonymous: {enabled: true}}\n")},
        "flags": [],
    },
    "feature gates merge": {
        "base": _base("featureGates: {PodLevelResourceManagers: true}\n"),
        "dropins": {"10-a.conf": _base("featureGates: {CPUManagerPolicyAlphaOptions: true}\n")},
        "flags": ["--feature-gates=NodeLogQuery=true"],
    },
    "flags win": {
        "base": STATIC,
        "dropins": {"10-a.conf": _base("maxPods: 10\n")},
        "flags": ["--max-pods=30", "--cpu-manager-policy", "none", "--reserved-cpus=0-1"],
    },
    "a map as a flag replaces": {
        "base": STATIC,
        "dropins": None,
        "flags": ["--kube-reserved=memory=3Gi", "--eviction-hard=memory.available<1Gi,nodefs.available<5%"],
    },
    "a flag given twice": {"base": STATIC, "dropins": None, "flags": ["--kube-reserved=memory=3Gi", "--kube-reserved=cpu=2"]},
    "reserved memory as a flag": {
        "base": _base("reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n"),
        "dropins": None,
        "flags": ["--reserved-memory=0:memory=512Mi;1:memory=612Mi"],
    },
    "flags with underscores": {"base": STATIC, "dropins": None, "flags": ["--max_pods=5", "--topology_manager_policy=restricted"]},
    "lists, headers and patterns as flags given twice": {
        "base": STATIC,
        "dropins": None,
        "flags": [
            "--register-with-taints=a=b:NoSchedule,c:NoExecute",
            "--register-with-taints=d:NoSchedule",
            "--cluster-dns=10.0.0.10,10.0.0.11",
            "--cluster-dns=10.0.0.12",
            "--manifest-url-header=A:1,A:2",
            "--manifest-url-header=B:3",
        ],
    },
    "policy options as flags": {
        "base": STATIC,
        "dropins": None,
        "flags": [
            "--cpu-manager-policy-options=full-pcpus-only=true",
            "--topology-manager-policy-options=max-allowable-numa-nodes=16",
        ],
    },
    "an empty drop-in": {"base": STATIC, "dropins": {"10-a.conf": ""}, "flags": []},
    "a drop-in of comments": {"base": STATIC, "dropins": {"10-a.conf": "# nothing\n"}, "flags": []},
    "a drop-in without kind": {
        "base": STATIC,
        "dropins": {"10-a.conf": "apiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 3\n"},
        "flags": [],
    },
    "a drop-in without apiVersion": {
        "base": STATIC,
        "dropins": {"10-a.conf": "kind: KubeletConfiguration\nmaxPods: 3\n"},
        "flags": [],
    },
    "a drop-in of another kind": {"base": STATIC, "dropins": {"10-a.conf": "apiVersion: v1\nkind: ConfigMap\n"}, "flags": []},
    "a drop-in that is no YAML": {"base": STATIC, "dropins": {"10-a.conf": HEADER + "maxPods: [\n"}, "flags": []},
    "a drop-in with a wrong type": {"base": STATIC, "dropins": {"10-a.conf": _base('maxPods: "3"\n')}, "flags": []},
    "a base with a wrong type": {"base": _base("cpuManagerPolicyOptions: {full-pcpus-only: true}\n"), "dropins": None, "flags": []},
    "a base without header": {"base": "maxPods: 3\n", "dropins": None, "flags": []},
    "an unknown gate": {"base": _base("featureGates: {NoSuchGate: true}\n"), "dropins": None, "flags": []},
    "a missing directory": {"base": STATIC, "dropins": {}, "flags": []},
}
