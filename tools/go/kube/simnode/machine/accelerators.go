package machine

import (
	"fmt"
	"sort"
	"strings"
)

// AcceleratorFiles returns what the drivers of NVIDIA and AMD GPUs show of a machine's devices: files and symbolic links by
// path below "/". Device i of nvidia.com/gpu is /dev/nvidia<i>, of amd.com/gpu /dev/dri/renderD<128+i>.
func AcceleratorFiles(numaNodes []int, devices map[string][]Device) (files, links map[string]string) {
	files, links = map[string]string{}, map[string]string{}
	resources := make([]string, 0, len(devices))
	for resource := range devices {
		resources = append(resources, resource)
	}
	sort.Strings(resources)
	slot := 0
	for _, resource := range resources {
		vendor, _, _ := strings.Cut(resource, "/")
		for i, device := range devices[resource] {
			slot++
			address := fmt.Sprintf("0000:%02x:00.0", 0x10+slot)
			pci := "sys/bus/pci/devices/" + address + "/"
			numa := int64(-1)
			if len(device.NUMA) > 0 {
				numa = device.NUMA[0]
			}
			files[pci+"numa_node"] = fmt.Sprintf("%d\n", numa)
			switch vendor {
			case "nvidia.com":
				files[pci+"vendor"], files[pci+"class"] = "0x10de\n", "0x030200\n"
				files["proc/driver/nvidia/gpus/"+address+"/information"] = fmt.Sprintf(
					"Model: \t\t NVIDIA GPU\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\n", device.ID, address, i)
			case "amd.com":
				files[pci+"vendor"], files[pci+"class"] = "0x1002\n", "0x120000\n"
				links[fmt.Sprintf("sys/class/drm/renderD%d/device", 128+i)] = "/" + strings.TrimSuffix(pci, "/")
				files[fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/properties", len(numaNodes)+i)] = fmt.Sprintf(
					"simd_count 1216\ndrm_render_minor %d\n", 128+i)
			}
		}
	}
	if len(links) > 0 {
		for i := range numaNodes {
			files[fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/properties", i)] = "cpu_cores_count 1\nsimd_count 0\ndrm_render_minor 0\n"
		}
	}
	return files, links
}
