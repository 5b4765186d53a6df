package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func TestMirrorFitsThisVersion(t *testing.T) {
	if err := checkInternals(); err != nil {
		t.Fatal(err)
	}
}

func twoNodes(kubelet map[string]any) *kase {
	c := &kase{ID: "x", Kubelet: kubelet}
	for id := range 2 {
		cpus := [][]int{{4 * id, 4*id + 1}, {4*id + 2, 4*id + 3}}
		c.Machine.NUMA = append(c.Machine.NUMA, numaNode{ID: id, CPUs: cpus, Socket: id, MemoryBytes: 1 << 34, Distances: []uint64{10, 21}})
	}
	return c
}

func guaranteed(name, cpu string) podStep {
	limits := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}
	return podStep{Name: name, Containers: []container{{Name: "c", Limits: limits}}}
}

func TestPodsComeAndGo(t *testing.T) {
	c := twoNodes(map[string]any{"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static", "kubeReserved": map[string]string{"cpu": "1"}})
	c.Pods = []podStep{guaranteed("a", "4"), guaranteed("b", "4"), {Name: "a", Remove: true}, guaranteed("c", "4"), guaranteed("Bad", "1")}
	answer := answerCase(c, t.TempDir(), nil)
	if answer.Error != "" || len(answer.ConfigErrors) > 0 || len(answer.Pods) != 5 {
		t.Fatalf("%+v", answer)
	}
	if got := answer.Pods[0].Containers[0]; got.CPUs != "4-7" || !reflect.DeepEqual(got.Topology, []int{1}) {
		t.Errorf("the first pod has %+v; node 1 is the only one without a reserved CPU", got)
	}
	if got := answer.Pods[1]; got.Admitted || got.Reason != "TopologyAffinityError" || got.Handler != "topologymanager" {
		t.Errorf("the second pod fits on no single node: %+v", got)
	}
	if removed := answer.Pods[2].Removed; removed == nil || !*removed {
		t.Error("the first pod was not there to end")
	}
	if !answer.Pods[3].Admitted {
		t.Errorf("what an ended pod held is not free again: %+v", answer.Pods[3])
	}
	if got := answer.Pods[4]; got.Reason != "InvalidPod" || got.Handler != "apiserver" {
		t.Errorf("a pod with a capital name reached the kubelet: %+v", got)
	}
}

func TestStartIsRefusedAtItsStage(t *testing.T) {
	for stage, kubelet := range map[string]map[string]any{
		"load":               {"maxPods": "110"},
		"validate":           {"topologyManagerPolicy": "strict"},
		"reservedSystemCPUs": {"reservedSystemCPUs": "99"},
		"kubeReserved":       {"kubeReserved": map[string]string{"gpu": "1"}},
		"cpumanager":         {"cpuManagerPolicy": "static"},
		"memorymanager":      {"memoryManagerPolicy": "Static"},
		"nodeAllocatable":    {"kubeReserved": map[string]string{"memory": "1Ti"}},
	} {
		if answer := answerCase(twoNodes(kubelet), t.TempDir(), nil); answer.ConfigStage != stage || len(answer.ConfigErrors) == 0 {
			t.Errorf("%v is refused at %q (%v), not at %q", kubelet, answer.ConfigStage, answer.ConfigErrors, stage)
		}
	}
}

func TestCaseThatCannotBeReadHasNoAnswer(t *testing.T) {
	answer := answerOften([]byte(`{"id": "x", "machine": 3}`), 1, t.TempDir(), nil)
	if answer.ID != "x" || !strings.HasPrefix(answer.Error, "bad case") {
		t.Errorf("%+v", answer)
	}
}

func TestMergeAppliesFlagsLast(t *testing.T) {
	header := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	base := header + "maxPods: 5\n"
	dropIns := map[string]string{"10.conf": header + "maxPods: 6\npodsPerCore: 2\n"}
	found, err := layers{Base: &base, Dropins: &dropIns, Flags: []string{"--max-pods=7"}}.merge(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if found.MaxPods != 7 || found.PodsPerCore != 2 {
		t.Errorf("maxPods %d, podsPerCore %d", found.MaxPods, found.PodsPerCore)
	}
}

func TestFieldsTellTypesDefaultsAndFlags(t *testing.T) {
	var out bytes.Buffer
	if err := runFields(nil, nil, &out); err != nil {
		t.Fatal(err)
	}
	var found catalogue
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"maxPods": "int32", "healthzPort": "*int32", "reservedMemory": "[]struct", "reservedMemory.limits": "map[string]Quantity", "syncFrequency": "Duration"} {
		if found.Types[path] != want {
			t.Errorf("%s has the type %q, not %q", path, found.Types[path], want)
		}
	}
	if found.Defaults["maxPods"] != 110.0 {
		t.Errorf("maxPods is %v by default", found.Defaults["maxPods"])
	}
	for _, flag := range found.Flags {
		if flag.Name == "reserved-cpus" && reflect.DeepEqual(flag.Fields, map[string]any{"reservedSystemCPUs": "two"}) {
			return
		}
	}
	t.Errorf("--reserved-cpus does not set reservedSystemCPUs: %+v", found.Flags)
}
