package main

import (
	"fmt"
	"sort"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Page sizes in KiB, as cAdvisor gives them.
const pages2Mi, pages1Gi = 2 << 10, 1 << 20

// info is what cAdvisor would report of the machine.
func (m *machine) info() (*machineInfo, error) {
	caches := map[int]int{}
	for id, cpus := range m.UncoreCaches {
		for _, cpu := range cpus {
			caches[cpu] = id
		}
	}
	info := &machineInfo{MemoryCapacity: m.MemoryCapacityBytes}
	sockets, pages := map[int]bool{}, map[uint64]uint64{}
	for _, n := range m.NUMA {
		node := machineNode{Id: n.ID, Memory: n.MemoryBytes, Distances: n.Distances}
		for i, threads := range n.CPUs {
			core := machineCore{Id: i, Threads: threads, SocketID: n.Socket}
			if i < len(n.CoreSockets) {
				core.SocketID = n.CoreSockets[i]
			}
			if len(threads) > 0 {
				if id, ok := caches[threads[0]]; ok {
					core.UncoreCaches = []machineCache{{Id: id, Type: "Unified", Level: 3}}
				}
			}
			node.Cores = append(node.Cores, core)
			sockets[core.SocketID] = true
			info.NumCores += len(threads)
			info.NumPhysicalCores++
		}
		var err error
		if node.HugePages, err = m.hugePages(n); err != nil {
			return nil, err
		}
		for _, size := range node.HugePages {
			pages[size.PageSize] += size.NumPages
		}
		if m.MemoryCapacityBytes == 0 {
			info.MemoryCapacity += n.MemoryBytes
		}
		info.Topology = append(info.Topology, node)
	}
	for size, count := range pages {
		info.HugePages = append(info.HugePages, machinePages{PageSize: size, NumPages: count})
	}
	info.NumSockets = len(sockets)
	return info, nil
}

func (m *machine) hugePages(n numaNode) ([]machinePages, error) {
	counts := map[uint64]uint64{}
	if !m.ExactHugePages {
		counts[pages2Mi], counts[pages1Gi] = 0, 0
	}
	for size, count := range n.HugePages {
		quantity, err := resource.ParseQuantity(size)
		if err != nil {
			return nil, fmt.Errorf("huge page size %q: %w", size, err)
		}
		counts[uint64(quantity.Value())/1024] = count
	}
	var pages []machinePages
	for size, count := range counts {
		pages = append(pages, machinePages{PageSize: size, NumPages: count})
	}
	sort.Slice(pages, func(i, j int) bool { return pages[i].PageSize < pages[j].PageSize })
	return pages, nil
}
