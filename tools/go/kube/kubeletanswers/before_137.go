//go:build before137

package main

// Before 1.37.

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

type (
	machineInfo  = cadvisorapi.MachineInfo
	machineNode  = cadvisorapi.Node
	machineCore  = cadvisorapi.Core
	machineCache = cadvisorapi.Cache
	machinePages = cadvisorapi.HugePagesInfo
)

func newTopologyManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration) (topologymanager.Manager, error) {
	return topologymanager.NewManager(info.Topology, kubelet.TopologyManagerPolicy, kubelet.TopologyManagerScope, kubelet.TopologyManagerPolicyOptions)
}

func (m *managers) validatePlugin(p *plugin, versions []string) error {
	return m.devices.GetWatcherHandler().ValidatePlugin(p.resource, p.SocketPath(), versions)
}

func setMachineInfo(object *v1.Node, kubelet *kubeletconfig.KubeletConfiguration, info *machineInfo, m *managers, reservation v1.ResourceList) error {
	set := nodestatus.MachineInfo(object.Name, int(kubelet.MaxPods), int(kubelet.PodsPerCore),
		func() (*machineInfo, error) { return info, nil },
		func(bool) v1.ResourceList { return nil },
		m.devices.GetCapacity,
		func() v1.ResourceList { return reservation },
		func(_, _, _ string) {}, false)
	return set(context.Background(), object)
}

func (h handler) admit(pod *v1.Pod, others []*v1.Pod) lifecycle.PodAdmitResult {
	return h.Admit(attributes(pod, others))
}

// completePodLevel has nothing to do: the API defaults complete spec.resources.
func completePodLevel(*core.Pod) {}

func (m *managers) affinity(uid, container string) topologymanager.TopologyHint {
	return m.topology.GetAffinity(uid, container)
}

func (m *managers) addToTopology(pod *v1.Pod, c *v1.Container, id string) {
	m.topology.AddContainer(pod, c, id)
}

func (m *managers) containerRemoved(id string) {
	_ = m.topology.RemoveContainer(id)
}
