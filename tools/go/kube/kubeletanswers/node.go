package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
)

// node is a started kubelet, as far as it decides on pods.
type node struct {
	managers
	c        *kase
	static   bool // the CPU manager's policy
	handlers []handler
	active   []*v1.Pod // what Kubelet.GetActivePods returns: the pods that are admitted, and the one in question
	evicted  []string
}

type handler struct {
	name string
	lifecycle.PodAdmitHandler
}

// refusal is why the kubelet does not start, and the stage of its start that says so.
type refusal struct {
	stage  string
	errors []string
}

func (r *refusal) Error() string { return r.stage + ": " + strings.Join(r.errors, "; ") }

func refuse(stage string, err error) error {
	if many, ok := err.(utilerrors.Aggregate); ok {
		r := &refusal{stage: stage}
		for _, one := range many.Errors() {
			r.errors = append(r.errors, one.Error())
		}
		return r
	}
	return &refusal{stage, []string{err.Error()}}
}

func answerCase(c *kase, stateDir string, gatesErr error) result {
	answer := result{ID: c.ID, ConfigErrors: []string{}, Pods: []podResult{}}
	dir, err := os.MkdirTemp(stateDir, "node")
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	defer os.RemoveAll(dir)
	n := &node{c: c}
	defer n.stop()
	answer.Node, err = n.start(dir, gatesErr)
	var why *refusal
	if errors.As(err, &why) {
		answer.ConfigStage, answer.ConfigErrors = why.stage, why.errors
		return answer
	} else if err != nil {
		answer.Error = err.Error()
		return answer
	}
	for i := range c.Pods {
		outcome, panicked := n.take(i, &c.Pods[i])
		answer.Pods = append(answer.Pods, outcome)
		if panicked {
			break
		}
	}
	return answer
}

// start follows run in cmd/kubelet/app, cm.NewContainerManager and containerManagerImpl.Start up to the first error: a *refusal
// where the kubelet stops, another error where the case makes no sense.
func (n *node) start(dir string, gatesErr error) (*nodeResult, error) {
	info, err := n.c.Machine.info()
	if err != nil {
		return nil, err
	}
	kubelet, err := n.configuration(dir, gatesErr)
	if err != nil {
		return nil, err
	}
	specific, err := reservedCPUs(info, kubelet.ReservedSystemCPUs)
	if err != nil {
		return nil, refuse("reservedSystemCPUs", err)
	}
	if specific.Size() > 0 {
		delete(kubelet.KubeReserved, "cpu")
		if kubelet.SystemReserved == nil {
			kubelet.SystemReserved = map[string]string{}
		}
		kubelet.SystemReserved["cpu"] = strconv.Itoa(specific.Size())
	}
	manager := newContainerManager(info)
	if manager.KubeReserved, err = linkedResourceList(kubelet.KubeReserved); err != nil {
		return nil, refuse("kubeReserved", fmt.Errorf("--kube-reserved value failed to parse: %w", err))
	}
	if manager.SystemReserved, err = linkedResourceList(kubelet.SystemReserved); err != nil {
		return nil, refuse("systemReserved", fmt.Errorf("--system-reserved value failed to parse: %w", err))
	}
	if manager.HardEvictionThresholds, err = eviction.ParseThresholdConfig(nil, kubelet.EvictionHard, nil, nil, nil); err != nil {
		return nil, refuse("evictionHard", err)
	}

	if n.topology, err = newTopologyManager(info, kubelet); err != nil {
		return nil, refuse("topologymanager", err)
	}
	if n.devices, err = newDeviceManager(filepath.Join(dir, "kubelet.sock"), info, n.topology); err != nil {
		return nil, refuse("devicemanager", err)
	}
	n.addHintProvider(n.devices)
	reservation := linkedReservation(manager)
	if n.cpus, err = newCPUManager(info, kubelet, specific, reservation, dir, n.topology); err != nil {
		return nil, refuse("cpumanager", err)
	}
	n.addHintProvider(n.cpus)
	if n.memory, err = newMemoryManager(info, kubelet, reservation, dir, n.topology); err != nil {
		return nil, refuse("memorymanager", err)
	}
	n.addHintProvider(n.memory)
	if err := n.startManagers(kubelet, manager); err != nil {
		return nil, err
	}

	object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{v1.LabelOSStable: "linux"}}}
	if err := setMachineInfo(object, kubelet, info, &n.managers, reservation); err != nil {
		return nil, err
	}
	critical := preemption.NewCriticalPodAdmissionHandler(n.activePods, n.evict, &record.FakeRecorder{})
	n.handlers = admissionHandlers(&n.managers, object, critical)
	answer := &nodeResult{Capacity: texts(object.Status.Capacity), Allocatable: texts(object.Status.Allocatable), Reservation: texts(reservation)}
	if n.static {
		answer.ReservedCPUs = n.cpus.GetAllCPUs().Difference(n.cpus.GetAllocatableCPUs()).String()
	}
	return answer, nil
}

// configuration is the case's, loaded from a file and validated. Only failCgroupV1 is ours: it depends on this host.
func (n *node) configuration(dir string, gatesErr error) (*kubeletconfig.KubeletConfiguration, error) {
	file := map[string]any{"failCgroupV1": false}
	for name, value := range n.c.Kubelet {
		file[name] = value
	}
	file["apiVersion"], file["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	data, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	kubelet, err := loadWithoutPanic(path)
	if err != nil {
		return nil, refuse("load", errors.New(strings.ReplaceAll(err.Error(), path, "config.yaml")))
	}
	if gatesErr != nil {
		return nil, refuse("featureGates", fmt.Errorf("failed to set feature gates from initial flags-based config: %w", gatesErr))
	}
	if err := validation.ValidateKubeletConfiguration(kubelet, utilfeature.DefaultFeatureGate); err != nil {
		return nil, refuse("validate", err)
	}
	return kubelet, nil
}

// loadWithoutPanic turns the panic of the defaults at an unknown or locked feature gate into an error.
func loadWithoutPanic(path string) (kubelet *kubeletconfig.KubeletConfiguration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return loadConfigFile(path)
}

func (n *node) startManagers(kubelet *kubeletconfig.KubeletConfiguration, manager *containerManager) error {
	sources := &sourcesReady{ended: make(chan struct{})}
	n.static = kubelet.CPUManagerPolicy == string(cpumanager.PolicyStatic)
	sources.armed.Store(n.static)
	if err := n.startCPUs(n.activePods, sources); err != nil {
		return refuse("cpumanager", fmt.Errorf("start cpu manager error: %w", err))
	}
	if n.static {
		<-sources.ended
	}
	if err := n.startMemory(n.activePods, sources); err != nil {
		return refuse("memorymanager", fmt.Errorf("start memory manager error: %w", err))
	}
	if err := linkedValidateAllocatable(manager); err != nil {
		return refuse("nodeAllocatable", err)
	}
	if err := n.startDevices(n.activePods, sources); err != nil {
		return err
	}
	for _, resource := range sortedKeys(n.c.Devices) {
		if err := n.register(newPlugin(resource, n.c.Devices[resource], n.c.DeviceAllocation != "arbitrary")); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) activePods() []*v1.Pod { return n.active }

// sourcesReady says yes. For the static CPU policy it first ends the CPU manager's reconciling goroutine (its first caller),
// whose only task is to push cpusets to a container runtime, and which would never stop.
type sourcesReady struct {
	armed atomic.Bool
	ended chan struct{}
}

func (*sourcesReady) AddSource(string) {}

func (s *sourcesReady) AllReady() bool {
	if s.armed.CompareAndSwap(true, false) {
		close(s.ended)
		runtime.Goexit()
	}
	return true
}
