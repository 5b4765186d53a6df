package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func twoSockets() Machine {
	return Machine{
		NUMA: []NUMANode{
			{ID: 0, Socket: 0, CPUs: [][]int{{0, 4}, {1, 5}}, MemoryBytes: 8 << 30, HugePages: map[string]int{"1Gi": 2}, Distances: []int{10, 21}},
			{ID: 1, Socket: 1, CPUs: [][]int{{2, 6}, {3, 7}}, MemoryBytes: 8 << 30, Distances: []int{21, 10}},
		},
		UncoreCaches: [][]int{{0, 4, 1, 5}, {2, 6, 3, 7}},
	}
}

func TestFilesShowTheMachineAsTheKernelWould(t *testing.T) {
	m := twoSockets()
	files := m.Files("uuid", "boot")
	for path, want := range map[string]string{
		"sys/devices/system/node/online":                                           "0-1",
		"sys/devices/system/node/node1/cpulist":                                    "2-3,6-7",
		"sys/devices/system/node/node1/cpumap":                                     "000000cc",
		"sys/devices/system/node/node0/distance":                                   "10 21",
		"sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": "2",
		"sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages": "0",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":                 "2",
		"sys/devices/system/cpu/cpu6/topology/physical_package_id":                 "1",
		"sys/devices/system/cpu/cpu6/topology/core_id":                             "0",
		"sys/devices/system/cpu/cpu7/topology/thread_siblings_list":                "3,7",
		"sys/devices/system/node/node1/cpu7/topology/core_id":                      "1",
		"sys/devices/system/cpu/cpu3/cache/index3/shared_cpu_list":                 "2-3,6-7",
		"proc/sys/kernel/random/boot_id":                                           "boot",
	} {
		if got := strings.TrimSpace(files[path]); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if !strings.HasPrefix(files["proc/meminfo"], "MemTotal:       16777216 kB\n") {
		t.Errorf("meminfo: %q", files["proc/meminfo"])
	}
	if !strings.Contains(files["sys/devices/system/node/node0/meminfo"], "MemTotal:       8388608 kB") {
		t.Errorf("node meminfo: %q", files["sys/devices/system/node/node0/meminfo"])
	}
	if got := strings.Count(files["proc/cpuinfo"], "processor\t:"); got != 8 {
		t.Errorf("cpuinfo has %d processors, want 8", got)
	}
}

func TestWrittenFilesCanBeReadBack(t *testing.T) {
	dir := t.TempDir()
	m := twoSockets()
	if err := WriteFiles(dir, m.Files("uuid", "boot")); err != nil {
		t.Fatal(err)
	}
	if err := WriteLinks(dir, map[string]string{"sys/class/drm/renderD128/device": "/sys/bus/pci/devices/x"}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "sys/devices/system/cpu/online"))
	if err != nil || string(content) != "0-7\n" {
		t.Errorf("online: %q, %v", content, err)
	}
}

func TestMaskHasTheHighestWordFirst(t *testing.T) {
	for want, ids := range map[string][]int{"00000000": nil, "0000000f": {0, 1, 2, 3}, "00000001,80000000": {31, 32}, "00010000,00000000,00000000,00000001": {0, 112}} {
		if got := Mask(ids); got != want {
			t.Errorf("Mask(%v) = %s, want %s", ids, got, want)
		}
	}
}

func TestImpossibleMachinesAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Machine){
		"needs at least one NUMA node":    func(m *Machine) { m.NUMA = nil },
		"not a multiple of 1024":          func(m *Machine) { m.NUMA[0].MemoryBytes = 1000 },
		"CPU 1 is already on NUMA node 0": func(m *Machine) { m.NUMA[1].CPUs[0] = []int{1} },
		"give one per node":               func(m *Machine) { m.NUMA[0].Distances = []int{10} },
		"does not exist on x86":           func(m *Machine) { m.NUMA[0].HugePages = map[string]int{"64Ki": 1} },
		"give one per core":               func(m *Machine) { m.NUMA[0].CoreSockets = []int{0} },
		"no NUMA node has a CPU":          func(m *Machine) { m.NUMA[0].CPUs, m.NUMA[1].CPUs = nil, nil },
	} {
		m := twoSockets()
		change(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
	m := twoSockets()
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
}

func TestDriversShowEachGPUOnItsNUMANode(t *testing.T) {
	files, links := AcceleratorFiles([]int{0, 1}, map[string][]Device{"nvidia.com/gpu": {{ID: "GPU-a-0", NUMA: []int64{0}}, {ID: "GPU-a-1", NUMA: []int64{1}}}})
	if got := files["sys/bus/pci/devices/0000:12:00.0/numa_node"]; got != "1\n" {
		t.Errorf("numa_node of the second GPU: %q", got)
	}
	if got := files["proc/driver/nvidia/gpus/0000:12:00.0/information"]; !strings.Contains(got, "GPU UUID: \t GPU-a-1\n") || !strings.Contains(got, "Device Minor: \t 1\n") {
		t.Errorf("information of the second GPU: %q", got)
	}
	if len(links) != 0 {
		t.Errorf("NVIDIA devices have no links here: %v", links)
	}
	files, links = AcceleratorFiles([]int{0, 1}, map[string][]Device{"amd.com/gpu": {{ID: "a-0", NUMA: nil}}})
	if links["sys/class/drm/renderD128/device"] != "/sys/bus/pci/devices/0000:11:00.0" || files["sys/bus/pci/devices/0000:11:00.0/numa_node"] != "-1\n" {
		t.Errorf("AMD: %v %v", files, links)
	}
	if got := files["sys/class/kfd/kfd/topology/nodes/2/properties"]; !strings.Contains(got, "drm_render_minor 128\n") {
		t.Errorf("KFD node: %q", got)
	}
}
