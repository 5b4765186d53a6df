package main

// The calls of Kubernetes that are the same in every supported minor, and the mirror of a struct whose unexported methods run as they
// are, reached by go:linkname instead of copied. checkInternals proves that the mirror has the layout of this version; a signature behind
// go:linkname is not checked by the compiler. What changes with a minor stands in a pair of files, since_N.go and before_N.go; the build
// tags before134 to before137 choose (none of them: the newest minor).

import (
	"errors"
	"sync"
	_ "unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/mount-utils"
)

// managers are those of one kubelet, started.
type managers struct {
	topology topologymanager.Manager
	devices  *devicemanager.ManagerImpl
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
}

var logger = klog.Background()

//go:linkname linkedMerge k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func linkedMerge(kubelet *kubeletconfig.KubeletConfiguration, dropInDir string) ([]string, error)

//go:linkname linkedFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func linkedFlagPrecedence(kubelet *kubeletconfig.KubeletConfiguration, args []string) error

//go:linkname linkedResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func linkedResourceList(m map[string]string) (v1.ResourceList, error)

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
