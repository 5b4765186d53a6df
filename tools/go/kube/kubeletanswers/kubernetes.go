package main

// What changes from one Kubernetes minor to the next: signatures, moved packages, and the unexported functions that run as they
// are, reached by go:linkname instead of copied. checkInternals proves that the mirrored struct has the layout of this version;
// a signature behind go:linkname is not checked by the compiler.

import (
	"context"
	"errors"
	"sync"
	"time"
	_ "unsafe"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	apipod "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/mount-utils"
	"k8s.io/utils/cpuset"
)

type (
	machineInfo  = cadvisorapi.MachineInfo
	machineNode  = cadvisorapi.Node
	machineCore  = cadvisorapi.Core
	machineCache = cadvisorapi.Cache
	machinePages = cadvisorapi.HugePagesInfo
)

// managers are those of one kubelet, started.
type managers struct {
	topology topologymanager.Manager
	devices  *devicemanager.ManagerImpl
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
}

var logger = klog.Background()

// Configuration
//
//go:linkname linkedLoadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func linkedLoadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname linkedMerge k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func linkedMerge(kubelet *kubeletconfig.KubeletConfiguration, dropInDir string) ([]string, error)

//go:linkname linkedFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func linkedFlagPrecedence(kubelet *kubeletconfig.KubeletConfiguration, args []string) error

//go:linkname linkedReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func linkedReservedCPUs(logger klog.Logger, info *machineInfo, cpus string) (cpuset.CPUSet, error)

//go:linkname linkedResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func linkedResourceList(m map[string]string) (v1.ResourceList, error)

// loadConfigFile decodes strictly (then leniently) and applies the defaults, those of evictionHard included.
func loadConfigFile(name string) (*kubeletconfig.KubeletConfiguration, error) {
	return linkedLoadConfigFile(context.Background(), name)
}

func reservedCPUs(info *machineInfo, cpus string) (cpuset.CPUSet, error) {
	return linkedReservedCPUs(logger, info, cpus)
}

// Reservations
//
// containerManager mirrors the first fields of cm.containerManagerImpl, all that the two methods below read.
type containerManager struct {
	sync.RWMutex
	_ cadvisor.Interface
	_ mount.Interface
	cm.NodeConfig
	_        cm.Status
	_        []*struct{}
	_        []func()
	_        *cm.CgroupSubsystems
	_        *v1.Node
	_        cm.CgroupManager
	capacity v1.ResourceList
	_        [1024]byte
}

//go:linkname linkedReservation k8s.io/kubernetes/pkg/kubelet/cm.(*containerManagerImpl).GetNodeAllocatableReservation
func linkedReservation(*containerManager) v1.ResourceList

//go:linkname linkedValidateAllocatable k8s.io/kubernetes/pkg/kubelet/cm.(*containerManagerImpl).validateNodeAllocatable
func linkedValidateAllocatable(*containerManager) error

func newContainerManager(info *machineInfo) *containerManager {
	return &containerManager{capacity: cadvisor.CapacityFromMachineInfo(info)}
}

func checkInternals() error {
	manager := &containerManager{capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}
	manager.SystemReserved = v1.ResourceList{v1.ResourceCPU: resource.MustParse("5")}
	reserved := linkedReservation(manager)[v1.ResourceCPU]
	if reserved.Value() != 5 || linkedValidateAllocatable(manager) == nil {
		return errors.New("the mirror of containerManagerImpl does not fit this Kubernetes version; correct kubernetes.go")
	}
	return nil
}

// Managers
//
//go:linkname linkedDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func linkedDeviceManager(logger klog.Logger, socket string, topology []machineNode, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

func newTopologyManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration) (topologymanager.Manager, error) {
	return topologymanager.NewManager(logger, info.Topology, kubelet.TopologyManagerPolicy, kubelet.TopologyManagerScope, kubelet.TopologyManagerPolicyOptions)
}

// newDeviceManager is NewManagerImpl with the socket as an argument: that one has /var/lib/kubelet in it.
func newDeviceManager(socket string, info *machineInfo, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return linkedDeviceManager(logger, socket, info.Topology, store)
}

func newCPUManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration, specific cpuset.CPUSet, reservation v1.ResourceList, dir string, store topologymanager.Store) (cpumanager.Manager, error) {
	return cpumanager.NewManager(logger, kubelet.CPUManagerPolicy, kubelet.CPUManagerPolicyOptions, time.Hour, info, specific, reservation, dir, store)
}

func newMemoryManager(info *machineInfo, kubelet *kubeletconfig.KubeletConfiguration, reservation v1.ResourceList, dir string, store topologymanager.Store) (memorymanager.Manager, error) {
	return memorymanager.NewManager(logger, kubelet.MemoryManagerPolicy, info, reservation, kubelet.ReservedMemory, dir, store)
}

func (m *managers) addHintProvider(provider topologymanager.HintProvider) {
	m.topology.AddHintProvider(logger, provider)
}

func (m *managers) startCPUs(active func() []*v1.Pod, sources config.SourcesReady) error {
	return m.cpus.Start(context.Background(), active, sources, nil, nil, containermap.NewContainerMap())
}

func (m *managers) startMemory(active func() []*v1.Pod, sources config.SourcesReady) error {
	return m.memory.Start(context.Background(), active, sources, nil, nil, containermap.NewContainerMap())
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
	ctx := context.Background()
	if err := m.devices.GetWatcherHandler().ValidatePlugin(ctx, p.resource, p.SocketPath(), []string{pluginapi.Version}); err != nil {
		return err
	}
	if err := m.devices.PluginConnected(ctx, p.resource, p); err != nil {
		return err
	}
	m.devices.PluginListAndWatchReceiver(logger, p.resource, listed)
	return nil
}

// Node status and admission

func setMachineInfo(object *v1.Node, kubelet *kubeletconfig.KubeletConfiguration, info *machineInfo, m *managers, reservation v1.ResourceList) error {
	set := nodestatus.MachineInfo(object.Name, int(kubelet.MaxPods), int(kubelet.PodsPerCore),
		func() (*machineInfo, error) { return info, nil },
		func(klog.Logger, bool) v1.ResourceList { return nil },
		m.devices.GetCapacity,
		func() v1.ResourceList { return reservation },
		func(_, _, _ string) {}, func() *bool { return nil }, false)
	return set(context.Background(), object)
}

// admissionHandlers are those of NewMainKubelet, in its order, that can refuse a pod here.
func admissionHandlers(m *managers, object *v1.Node, critical lifecycle.AdmissionFailureHandler) []handler {
	getNode := func(context.Context, bool) (*v1.Node, error) { return object, nil }
	return []handler{
		{"topologymanager", m.topology},
		{"predicate", lifecycle.NewPredicateAdmitHandler(getNode, critical, m.devices.UpdatePluginResources)},
		{"podfeatures", lifecycle.NewPodFeaturesAdmitHandler()},
	}
}

func (h handler) admit(pod *v1.Pod, others []*v1.Pod) lifecycle.PodAdmitResult {
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation}
	return h.Admit(context.Background(), attributes)
}

// completePodLevel is what the registry's PrepareForCreate fills in of spec.resources since 1.37; before, the defaults did.
func completePodLevel(pod *core.Pod) {
	apipod.DefaultPodLevelResources(pod)
}

// Containers

func (m *managers) affinity(uid, container string) topologymanager.TopologyHint {
	return m.topology.GetAffinity(logger, uid, container)
}

func (m *managers) podCPUs(uid string) string {
	return m.cpus.GetPodCPUs(uid).String()
}

func (m *managers) memoryNodes(pod *v1.Pod, c *v1.Container) map[int]struct{} {
	nodes := map[int]struct{}{}
	for id := range m.memory.GetMemoryNUMANodes(logger, pod, c) {
		nodes[id] = struct{}{}
	}
	return nodes
}

// containerStarted is Kubelet.GenerateRunContainerOptions, then internalContainerLifecycleImpl.PreStartContainer.
func (m *managers) containerStarted(pod *v1.Pod, c *v1.Container, id string) error {
	_, err := m.devices.GetDeviceRunContainerOptions(context.Background(), pod, c)
	m.cpus.AddContainer(logger, pod, c, id)
	m.memory.AddContainer(logger, pod, c, id)
	m.topology.AddContainer(logger, pod, c, id)
	return err
}

func (m *managers) containerRemoved(id string) {
	_ = m.topology.RemoveContainer(logger, id)
}
