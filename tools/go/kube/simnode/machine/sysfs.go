package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Files returns the machine as the kernel shows it: path below "/" to content. Directories to cover with them are
// /sys/devices/system/cpu, /sys/devices/system/node, /sys/kernel/mm/hugepages and /sys/class/dmi.
func (m *Machine) Files(systemUUID, bootID string) map[string]string {
	files := map[string]string{
		"sys/class/dmi/id/product_uuid":     systemUUID + "\n",
		"proc/sys/kernel/random/boot_id":    bootID + "\n",
		"proc/meminfo":                      m.meminfo(),
		"proc/cpuinfo":                      m.cpuinfo(),
		"sys/devices/system/node/online":    List(m.NUMANodeIDs()) + "\n",
		"sys/devices/system/node/possible":  List(m.NUMANodeIDs()) + "\n",
		"sys/devices/system/node/has_cpu":   List(m.nodesWithCPUs()) + "\n",
		"sys/devices/system/cpu/online":     List(m.CPUs()) + "\n",
		"sys/devices/system/cpu/present":    List(m.CPUs()) + "\n",
		"sys/devices/system/cpu/possible":   List(m.CPUs()) + "\n",
		"sys/devices/system/cpu/offline":    "\n",
		"sys/devices/system/cpu/kernel_max": "8191\n",
	}
	pages := map[string]int{"2Mi": 0, "1Gi": 0}
	sockets := m.socketCPUs()
	nextCore := map[int]int{}
	for i := range m.NUMA {
		node := &m.NUMA[i]
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node.ID)
		var cpus []int
		for c, core := range node.CPUs {
			socket := node.socketOf(c)
			coreID := nextCore[socket]
			nextCore[socket]++
			cpus = append(cpus, core...)
			for _, cpu := range core {
				for _, parent := range []string{fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu), fmt.Sprintf("%scpu%d/", dir, cpu)} {
					files[parent+"topology/core_id"] = strconv.Itoa(coreID) + "\n"
					files[parent+"topology/physical_package_id"] = strconv.Itoa(socket) + "\n"
					files[parent+"topology/thread_siblings_list"] = List(core) + "\n"
					files[parent+"topology/core_cpus_list"] = List(core) + "\n"
					files[parent+"topology/thread_siblings"] = Mask(core) + "\n"
					files[parent+"topology/core_siblings"] = Mask(sockets[socket]) + "\n"
				}
			}
		}
		files[dir+"cpulist"] = List(cpus) + "\n"
		files[dir+"cpumap"] = Mask(cpus) + "\n"
		files[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB\n",
			node.ID, node.MemoryBytes/1024, node.ID, node.MemoryBytes/1024)
		if len(node.Distances) > 0 {
			files[dir+"distance"] = strings.Trim(fmt.Sprint(node.Distances), "[]") + "\n"
		}
		for size := range pages {
			pages[size] += node.HugePages[size]
			files[fmt.Sprintf("%shugepages/hugepages-%dkB/nr_hugepages", dir, pageSizes[size]/1024)] = strconv.Itoa(node.HugePages[size]) + "\n"
		}
	}
	for size, count := range pages {
		files[fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", pageSizes[size]/1024)] = strconv.Itoa(count) + "\n"
	}
	for id, cpus := range m.UncoreCaches {
		for _, cpu := range cpus {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index3/", cpu)
			files[dir+"id"] = strconv.Itoa(id) + "\n"
			files[dir+"level"] = "3\n"
			files[dir+"type"] = "Unified\n"
			files[dir+"size"] = "32768K\n"
			files[dir+"shared_cpu_list"] = List(cpus) + "\n"
			files[dir+"shared_cpu_map"] = Mask(cpus) + "\n"
		}
	}
	return files
}

func (m *Machine) socketCPUs() map[int][]int {
	sockets := map[int][]int{}
	for i := range m.NUMA {
		for c, core := range m.NUMA[i].CPUs {
			socket := m.NUMA[i].socketOf(c)
			sockets[socket] = append(sockets[socket], core...)
		}
	}
	return sockets
}

func (m *Machine) nodesWithCPUs() []int {
	var ids []int
	for _, node := range m.NUMA {
		if len(node.CPUs) > 0 {
			ids = append(ids, node.ID)
		}
	}
	sort.Ints(ids)
	return ids
}

func (m *Machine) meminfo() string {
	total := m.MemTotalBytes() / 1024
	return fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n",
		total, total, total)
}

func (m *Machine) cpuinfo() string {
	type place struct{ cpu, core, socket int }
	var places []place
	nextCore := map[int]int{}
	for i := range m.NUMA {
		node := &m.NUMA[i]
		for c, core := range node.CPUs {
			socket := node.socketOf(c)
			for _, cpu := range core {
				places = append(places, place{cpu, nextCore[socket], socket})
			}
			nextCore[socket]++
		}
	}
	slices.SortFunc(places, func(a, b place) int { return a.cpu - b.cpu })
	var text strings.Builder
	for _, p := range places {
		fmt.Fprintf(&text, "processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Simulated CPU\ncpu MHz\t\t: 2000.000\nphysical id\t: %d\ncore id\t\t: %d\n\n",
			p.cpu, p.socket, p.core)
	}
	return text.String()
}

// WriteFiles writes path-to-content below dir.
func WriteFiles(dir string, files map[string]string) error {
	for path, content := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(content), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// WriteLinks makes the symbolic links of path-to-target below dir.
func WriteLinks(dir string, links map[string]string) error {
	for path, target := range links {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, full); err != nil {
			return err
		}
	}
	return nil
}

// List writes ids as the kernel does: "0-3,8".
func List(ids []int) string { return cpuset.New(ids...).String() }

// Mask writes ids as the kernel's hexadecimal bit map, 32 bits a word, highest word first: "00000001,000000ff".
func Mask(ids []int) string {
	words := make([]uint32, slices.Max(append([]int{0}, ids...))/32+1)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	parts := make([]string, len(words))
	for i, word := range words {
		parts[len(words)-1-i] = fmt.Sprintf("%08x", word)
	}
	return strings.Join(parts, ",")
}
