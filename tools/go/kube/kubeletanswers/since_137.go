//go:build !before137

package main

// Since 1.37: cAdvisor's types moved, and the topology manager logs to the logger that it is given.

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/pod"
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
	return topologymanager.NewManager(logger, info.Topology, kubelet.TopologyManagerPolicy, kubelet.TopologyManagerScope, kubelet.TopologyManagerPolicyOptions)
}

func (m *managers) validatePlugin(p *plugin, versions []string) error {
	return m.devices.GetWatcherHandler().ValidatePlugin(context.Background(), p.resource, p.SocketPath(), versions)
}

func setMachineInfo(object *v1.Node, kubelet *kubeletconfig.KubeletConfiguration, info *machineInfo, m *managers, reservation v1.ResourceList) error {
	set := nodestatus.MachineInfo(object.Name, int(kubelet.MaxPods), int(kubelet.PodsPerCore),
		func() (*machineInfo, error) { return info, nil },
		func(klog.Logger, bool) v1.ResourceList { return nil },
		m.devices.GetCapacity,
		func() v1.ResourceList { return reservation },
		func(_, _, _ string) {}, func() *bool { return nil }, false)
	return set(context.Background(), object)
}

func (h handler) admit(pod *v1.Pod, others []*v1.Pod) lifecycle.PodAdmitResult {
	return h.Admit(context.Background(), attributes(pod, others))
}

// completePodLevel is what the registry's PrepareForCreate fills in of spec.resources since 1.37; before, the defaults did.
func completePodLevel(pod *core.Pod) {
	apipod.DefaultPodLevelResources(pod)
}

func (m *managers) affinity(uid, container string) topologymanager.TopologyHint {
	return m.topology.GetAffinity(logger, uid, container)
}

func (m *managers) addToTopology(pod *v1.Pod, c *v1.Container, id string) {
	m.topology.AddContainer(logger, pod, c, id)
}

func (m *managers) containerRemoved(id string) {
	_ = m.topology.RemoveContainer(logger, id)
}
