package main

import v1 "k8s.io/api/core/v1"

// kase is a machine, a kubelet configuration, devices, and pods that come (and go) one after the other.
type kase struct {
	ID      string  `json:"id"`
	Machine machine `json:"machine"`
	// Kubelet is a KubeletConfiguration (v1beta1) without apiVersion and kind.
	Kubelet map[string]any      `json:"kubelet"`
	Devices map[string][]device `json:"devices"`
	Pods    []podStep           `json:"pods"`
	// DeviceAllocation: "ordered" (default: the plugin prefers its devices in the order of their listing) or "arbitrary" (it
	// has no preference, and the kubelet takes them in the random order of a map).
	DeviceAllocation string `json:"deviceAllocation"`
	// HoldStart: containers are not started after the admission, which is when memory of init containers is freed.
	HoldStart bool `json:"holdStart"`
	// TimeoutSeconds replaces the limit of the command line for this case.
	TimeoutSeconds float64 `json:"timeoutSeconds"`
}

type machine struct {
	NUMA                []numaNode `json:"numa"`
	UncoreCaches        [][]int    `json:"uncore_caches"`
	MemoryCapacityBytes uint64     `json:"memory_capacity_bytes"` // 0: the sum over the NUMA nodes
	ExactHugePages      bool       `json:"exact_hugepages"`       // false: 2Mi and 1Gi exist everywhere, as on x86
}

type numaNode struct {
	ID          int               `json:"id"`
	CPUs        [][]int           `json:"cpus"` // one list of logical CPUs a core
	Socket      int               `json:"socket"`
	CoreSockets []int             `json:"core_sockets"` // per core, instead of socket
	MemoryBytes uint64            `json:"memory_bytes"`
	HugePages   map[string]uint64 `json:"hugepages"`
	Distances   []uint64          `json:"distances"`
}

type device struct {
	ID      string  `json:"id"`
	NUMA    []int64 `json:"numa"`
	Healthy *bool   `json:"healthy"`
}

// podStep is the next pod, or with Remove the end of an earlier one.
type podStep struct {
	Name           string          `json:"name"`
	Remove         bool            `json:"remove"`
	InitContainers []container     `json:"initContainers"`
	Containers     []container     `json:"containers"`
	Resources      *podRequest     `json:"resources"`
	Overhead       v1.ResourceList `json:"overhead"`
	Priority       *int32          `json:"priority"`
}

type podRequest struct {
	Requests v1.ResourceList `json:"requests"`
	Limits   v1.ResourceList `json:"limits"`
}

type container struct {
	Name          string                     `json:"name"`
	Requests      v1.ResourceList            `json:"requests"`
	Limits        v1.ResourceList            `json:"limits"`
	RestartPolicy *v1.ContainerRestartPolicy `json:"restartPolicy"`
}

// result answers a case. Error is set where there is no answer: a case that cannot be read, or kubelet code that did not end.
type result struct {
	ID           string        `json:"id"`
	ConfigErrors []string      `json:"config_errors"` // why the kubelet does not start, else empty
	ConfigStage  string        `json:"config_stage,omitempty"`
	Node         *nodeResult   `json:"node,omitempty"`
	Pods         []podResult   `json:"pods"`
	Error        string        `json:"error,omitempty"`
	Variants     [][]podResult `json:"variants,omitempty"` // other outcomes of the same case, seen when it was repeated
}

type nodeResult struct {
	Capacity     map[string]string `json:"capacity"`
	Allocatable  map[string]string `json:"allocatable"`
	Reservation  map[string]string `json:"reservation"`
	ReservedCPUs string            `json:"reserved_cpus,omitempty"` // of the static CPU policy
}

type podResult struct {
	Name       string            `json:"name"`
	Removed    *bool             `json:"removed,omitempty"` // only where a pod was to end: whether there was one
	Admitted   bool              `json:"admitted"`
	Reason     string            `json:"reason,omitempty"`
	Message    string            `json:"message,omitempty"`
	Handler    string            `json:"handler,omitempty"` // who refused
	QOS        string            `json:"qos,omitempty"`
	Containers []containerResult `json:"containers"`
	PodCPUs    string            `json:"pod_cpus,omitempty"`
	SharedCPUs string            `json:"shared_cpus,omitempty"` // the shared pool afterwards
	Preempted  []string          `json:"preempted,omitempty"`
}

type containerResult struct {
	Name       string              `json:"name"`
	CPUs       string              `json:"cpus"`
	MemoryNUMA []int               `json:"memory_numa"`
	Devices    map[string][]string `json:"devices"`
	Topology   []int               `json:"topology"` // null: no preference
	Preferred  bool                `json:"preferred"`
	StartError string              `json:"start_error,omitempty"` // devices that could not be allocated at the start
}
