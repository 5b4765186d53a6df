//go:build before135 && !before134

package main

// The memory manager of 1.34: it takes a context.

import (
	"context"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func newMemoryManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration, reservation v1.ResourceList, dir string, store topologymanager.Store) (memorymanager.Manager, error) {
	return memorymanager.NewManager(context.Background(), kubelet.MemoryManagerPolicy, info, reservation, kubelet.ReservedMemory, dir, store)
}

func (m *managers) memoryNodes(pod *v1.Pod, c *v1.Container) map[int]struct{} {
	nodes := map[int]struct{}{}
	for id := range m.memory.GetMemoryNUMANodes(context.Background(), pod, c) {
		nodes[id] = struct{}{}
	}
	return nodes
}

func (m *managers) addToMemory(pod *v1.Pod, c *v1.Container, id string) {
	m.memory.AddContainer(context.Background(), pod, c, id)
}
