//go:build !before135

package main

// The memory manager since 1.35: it takes a logger.

import (
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func newMemoryManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration, reservation v1.ResourceList, dir string, store topologymanager.Store) (memorymanager.Manager, error) {
	return memorymanager.NewManager(logger, kubelet.MemoryManagerPolicy, info, reservation, kubelet.ReservedMemory, dir, store)
}

func (m *managers) memoryNodes(pod *v1.Pod, c *v1.Container) map[int]struct{} {
	nodes := map[int]struct{}{}
	for id := range m.memory.GetMemoryNUMANodes(logger, pod, c) {
		nodes[id] = struct{}{}
	}
	return nodes
}

func (m *managers) addToMemory(pod *v1.Pod, c *v1.Container, id string) {
	m.memory.AddContainer(logger, pod, c, id)
}
