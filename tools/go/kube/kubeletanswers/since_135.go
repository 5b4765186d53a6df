//go:build !before135

package main

// Since 1.35: the CPU and device managers log to the logger that they are given.

import (
	"context"
	"time"
	_ "unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

//go:linkname linkedReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func linkedReservedCPUs(logger klog.Logger, info *machineInfo, cpus string) (cpuset.CPUSet, error)

//go:linkname linkedDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func linkedDeviceManager(logger klog.Logger, socket string, topology []machineNode, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

func reservedCPUs(info *machineInfo, cpus string) (cpuset.CPUSet, error) {
	return linkedReservedCPUs(logger, info, cpus)
}

// newDeviceManager is NewManagerImpl with the socket as an argument: that one has /var/lib/kubelet in it.
func newDeviceManager(socket string, info *machineInfo, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return linkedDeviceManager(logger, socket, info.Topology, store)
}

func newCPUManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration, specific cpuset.CPUSet, reservation v1.ResourceList, dir string, store topologymanager.Store) (cpumanager.Manager, error) {
	return cpumanager.NewManager(logger, kubelet.CPUManagerPolicy, kubelet.CPUManagerPolicyOptions, time.Hour, info, specific, reservation, dir, store)
}

func (m *managers) addHintProvider(provider topologymanager.HintProvider) {
	m.topology.AddHintProvider(logger, provider)
}

func (m *managers) startCPUs(active func() []*v1.Pod, sources config.SourcesReady) error {
	return m.cpus.Start(context.Background(), active, sources, nil, nil, containermap.NewContainerMap())
}

func (m *managers) startDevices(active func() []*v1.Pod, sources config.SourcesReady) error {
	return m.devices.Start(logger, active, sources, containermap.NewContainerMap(), nil)
}

func (m *managers) stop() {
	if m.devices != nil {
		_ = m.devices.Stop(logger)
	}
}

// register is the registration of a device plugin: validated by the server, connected, then its devices received.
func (m *managers) register(p *plugin, listed *pluginapi.ListAndWatchResponse) error {
	if err := m.validatePlugin(p, []string{pluginapi.Version}); err != nil {
		return err
	}
	if err := m.devices.PluginConnected(context.Background(), p.resource, p); err != nil {
		return err
	}
	m.devices.PluginListAndWatchReceiver(logger, p.resource, listed)
	return nil
}

func (m *managers) predicate(object *v1.Node, critical lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler {
	getNode := func(context.Context, bool) (*v1.Node, error) { return object, nil }
	return lifecycle.NewPredicateAdmitHandler(getNode, critical, m.devices.UpdatePluginResources)
}

// containerStarted is Kubelet.GenerateRunContainerOptions, then internalContainerLifecycleImpl.PreStartContainer.
func (m *managers) containerStarted(pod *v1.Pod, c *v1.Container, id string) error {
	_, err := m.devices.GetDeviceRunContainerOptions(context.Background(), pod, c)
	m.cpus.AddContainer(logger, pod, c, id)
	m.addToMemory(pod, c, id)
	m.addToTopology(pod, c, id)
	return err
}
