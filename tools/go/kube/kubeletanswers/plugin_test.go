//go:build !before137

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	grpcplugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

const gpu = "example.com/gpu"

// The plugin in this process and the upstream stub behind a socket must look the same to the device manager.
func TestPluginLooksLikeOneBehindASocket(t *testing.T) {
	ctx := t.Context()
	c := twoNodes(map[string]any{"topologyManagerPolicy": "restricted"})
	c.Devices = map[string][]device{gpu: {}}
	var listed []*pluginapi.Device
	for i := range 5 {
		d := device{ID: fmt.Sprintf("gpu%d", i), NUMA: []int64{int64(i / 3)}}
		c.Devices[gpu] = append(c.Devices[gpu], d)
		topology := &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: d.NUMA[0]}}}
		listed = append(listed, &pluginapi.Device{ID: d.ID, Health: pluginapi.Healthy, Topology: topology})
	}
	ours := &node{c: c}
	if _, err := ours.start(t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	defer ours.stop()

	dir, err := os.MkdirTemp("", "grpc") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	info, err := c.Machine.info()
	if err != nil {
		t.Fatal(err)
	}
	theirs := managers{topology: ours.topology}
	if theirs.devices, err = newDeviceManager(filepath.Join(dir, "kubelet.sock"), info, ours.topology); err != nil {
		t.Fatal(err)
	}
	if err := theirs.startDevices(func() []*v1.Pod { return nil }, &sourcesReady{}); err != nil {
		t.Fatal(err)
	}
	defer theirs.stop()
	stub := grpcplugin.NewDevicePluginStub(logger, listed, filepath.Join(dir, "gpu.sock"), gpu, false, true)
	if err := stub.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer stub.Stop(logger)
	if err := stub.Register(ctx, filepath.Join(dir, "kubelet.sock"), gpu, dir); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, allocatable, _ := theirs.devices.GetCapacity(logger)
		if count := allocatable[gpu]; count.Value() == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the plugin behind the socket did not register")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for count := int64(1); count <= 6; count++ {
		limits := v1.ResourceList{gpu: *resource.NewQuantity(count, resource.DecimalSI)}
		c := &v1.Container{Name: "c", Resources: v1.ResourceRequirements{Limits: limits}}
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{*c}}}
		here := ours.devices.GetTopologyHints(logger, pod, c, lifecycle.AddOperation)
		there := theirs.devices.GetTopologyHints(logger, pod, c, lifecycle.AddOperation)
		if fmt.Sprint(here) != fmt.Sprint(there) || len(here) != 1 {
			t.Errorf("hints for %d devices: %v, behind a socket %v", count, here, there)
		}
	}
	here, there := ours.devices.GetAllocatableDevices(logger)[gpu], theirs.devices.GetAllocatableDevices(logger)[gpu]
	if !reflect.DeepEqual(sortedKeys(here), sortedKeys(there)) {
		t.Errorf("devices %v, behind a socket %v", here, there)
	}
}
