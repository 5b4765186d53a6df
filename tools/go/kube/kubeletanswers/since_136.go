//go:build !before136

package main

// Since 1.36: admission knows whether a pod is added or resized, and the CPU manager has CPUs of whole pods.

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

func attributes(pod *v1.Pod, others []*v1.Pod) *lifecycle.PodAdmitAttributes {
	return &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation}
}

func (m *managers) podCPUs(uid string) string {
	cpus, _ := m.cpus.State().GetPodCPUSet(uid)
	return cpus.String()
}
