// Package machine describes the hardware of a simulated node and writes it in the form in which the Linux kernel shows
// hardware: files below /sys and /proc. An unmodified kubelet (through cAdvisor), lscpu and numactl then see that machine.
package machine

import (
	"errors"
	"fmt"
	"sort"
)

// NUMANode is one NUMA node: its physical cores as lists of logical CPU numbers, its memory with huge pages included.
type NUMANode struct {
	ID          int            `json:"id"`
	CPUs        [][]int        `json:"cpus"`
	Socket      int            `json:"socket"`
	CoreSockets []int          `json:"core_sockets,omitempty"`
	MemoryBytes uint64         `json:"memory_bytes"`
	HugePages   map[string]int `json:"hugepages,omitempty"`
	Distances   []int          `json:"distances,omitempty"`
}

// Machine is the hardware of one node. MemoryCapacityBytes 0 means the sum of the NUMA nodes.
type Machine struct {
	NUMA                []NUMANode `json:"numa"`
	UncoreCaches        [][]int    `json:"uncore_caches,omitempty"`
	MemoryCapacityBytes uint64     `json:"memory_capacity_bytes,omitempty"`
}

// Device is one device of a device plugin; without NUMA nodes the plugin reports no topology for it.
type Device struct {
	ID      string  `json:"id"`
	NUMA    []int64 `json:"numa"`
	Healthy *bool   `json:"healthy,omitempty"`
}

var pageSizes = map[string]uint64{"2Mi": 2 << 20, "1Gi": 1 << 30}

// Validate says what makes a machine impossible.
func (m *Machine) Validate() error {
	if len(m.NUMA) == 0 {
		return errors.New("machine.numa: a machine needs at least one NUMA node")
	}
	seen := map[int]int{}
	for i, node := range m.NUMA {
		if node.MemoryBytes%1024 != 0 {
			return fmt.Errorf("machine.numa[%d].memory_bytes: %d is not a multiple of 1024; the kernel counts memory in KiB", i, node.MemoryBytes)
		}
		if len(node.CoreSockets) > 0 && len(node.CoreSockets) != len(node.CPUs) {
			return fmt.Errorf("machine.numa[%d].core_sockets: %d entries for %d cores; give one per core", i, len(node.CoreSockets), len(node.CPUs))
		}
		if len(node.Distances) > 0 && len(node.Distances) != len(m.NUMA) {
			return fmt.Errorf("machine.numa[%d].distances: %d entries for %d NUMA nodes; give one per node", i, len(node.Distances), len(m.NUMA))
		}
		for size := range node.HugePages {
			if _, known := pageSizes[size]; !known {
				return fmt.Errorf("machine.numa[%d].hugepages: size %q does not exist on x86; use 2Mi or 1Gi", i, size)
			}
		}
		for _, core := range node.CPUs {
			if len(core) == 0 {
				return fmt.Errorf("machine.numa[%d].cpus: a core without logical CPUs; give at least one", i)
			}
			for _, cpu := range core {
				if other, twice := seen[cpu]; twice {
					return fmt.Errorf("machine.numa[%d].cpus: CPU %d is already on NUMA node %d; each CPU has one place", i, cpu, other)
				}
				seen[cpu] = node.ID
			}
		}
	}
	if len(seen) == 0 {
		return errors.New("machine.numa: no NUMA node has a CPU; a node without CPUs cannot run")
	}
	return nil
}

// CPUs lists all logical CPUs in ascending order.
func (m *Machine) CPUs() []int {
	var all []int
	for _, node := range m.NUMA {
		for _, core := range node.CPUs {
			all = append(all, core...)
		}
	}
	sort.Ints(all)
	return all
}

// NUMANodeIDs lists the NUMA node ids in ascending order.
func (m *Machine) NUMANodeIDs() []int {
	ids := make([]int, 0, len(m.NUMA))
	for _, node := range m.NUMA {
		ids = append(ids, node.ID)
	}
	sort.Ints(ids)
	return ids
}

// MemTotalBytes is what the kernel's MemTotal line would say.
func (m *Machine) MemTotalBytes() uint64 {
	if m.MemoryCapacityBytes > 0 {
		return m.MemoryCapacityBytes
	}
	var sum uint64
	for _, node := range m.NUMA {
		sum += node.MemoryBytes
	}
	return sum
}

func (n *NUMANode) socketOf(core int) int {
	if len(n.CoreSockets) > 0 {
		return n.CoreSockets[core]
	}
	return n.Socket
}
