package cri

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func newTestRuntime(t *testing.T, prefix string) *Runtime {
	t.Helper()
	r, err := NewRuntime(Options{
		NodeIP: "127.0.0.1", PodPrefix: prefix, CPUs: "0-7", Mems: "0-1", StateDir: t.TempDir(), Launcher: "/nonexistent",
		Images: ImageRules{Process: []string{"docker.io/library/python", "docker.io/library/busy*"}, Users: map[string]int64{"docker.io/vllm/vllm-openai": 2000}},
		Start:  func(cmd *exec.Cmd) (func() error, error) { return cmd.Wait, cmd.Start() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRepositoryIsTheFullName(t *testing.T) {
	for image, want := range map[string]string{
		"python": "docker.io/library/python", "python:3.12-slim": "docker.io/library/python", "vllm/vllm-openai:v0.1": "docker.io/vllm/vllm-openai",
		"nvcr.io/nvidia/k8s-device-plugin:v1": "nvcr.io/nvidia/k8s-device-plugin", "localhost:5000/a@sha256:00": "localhost:5000/a", "localhost/a:b": "localhost/a",
	} {
		if got := Repository(image); got != want {
			t.Errorf("Repository(%s) = %s, want %s", image, got, want)
		}
	}
}

func TestImageRules(t *testing.T) {
	rules := newTestRuntime(t, "10.0.0.0/24").options.Images
	for image, want := range map[string]bool{"python:3": true, "busybox": true, "docker.io/library/busyness": true, "vllm/vllm-openai:v1": false, "example.com/python": false} {
		if got := rules.IsProcess(image); got != want {
			t.Errorf("IsProcess(%s) = %v", image, got)
		}
	}
	if rules.User("vllm/vllm-openai:v1") != 2000 || rules.User("python") != 0 {
		t.Error("users")
	}
}

func TestPodAddressesAreGivenAgainOnlyAfterTheirSandboxStopped(t *testing.T) {
	r, ctx := newTestRuntime(t, "10.244.1.0/30"), context.Background()
	run := func() (string, error) {
		answer, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{}})
		return answer.GetPodSandboxId(), err
	}
	first, err := run()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.sandboxes[first].address; got != netip.MustParseAddr("10.244.1.2") {
		t.Errorf("first address %s", got)
	}
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err == nil || !strings.Contains(err.Error(), "no free pod address") {
		t.Errorf("a third pod in a /30: %v", err)
	}
	if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: first}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err != nil {
		t.Errorf("after a stop: %v", err)
	}
	if _, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: first}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err == nil {
		t.Error("the stopped sandbox's address was given to two pods once it was removed")
	}
	hostNetwork := &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}}
	answer, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: hostNetwork})
	if err != nil || r.podAddress(r.sandboxes[answer.PodSandboxId]) != "127.0.0.1" {
		t.Errorf("host network: %v", err)
	}
}

func createdContainer(t *testing.T, r *Runtime, annotations map[string]string, config *runtimeapi.ContainerConfig) *container {
	t.Helper()
	ctx := context.Background()
	pod, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Annotations: annotations}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return r.containers[answer.ContainerId]
}

func TestContainersSeeTheCPUsThatTheKubeletGave(t *testing.T) {
	r := newTestRuntime(t, "10.0.0.0/24")
	c := createdContainer(t, r, nil, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "python"},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: "2-3", CpusetMems: "1", MemoryLimitInBytes: 1024}},
	})
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(r.dir(c.id), "cgroup", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(content))
	}
	if read("cpuset.cpus.effective") != "2-3" || read("cpuset.mems.effective") != "1" || read("memory.max") != "1024" {
		t.Error("control group files do not show what was given")
	}
	_, err := r.UpdateContainerResources(context.Background(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "4-5"}})
	if err != nil || read("cpuset.cpus.effective") != "4-5" || read("cpuset.mems.effective") != "1" {
		t.Errorf("after an update of the CPUs alone: %v", err)
	}
}

type fixedPods bool

func (f fixedPods) ContainerEnds(context.Context, *runtimeapi.PodSandboxMetadata, string) (bool, error) {
	return bool(f), nil
}

func TestStandInsBehaveAsAnnotated(t *testing.T) {
	r := newTestRuntime(t, "10.0.0.0/24")
	r.options.Pods = fixedPods(true)
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "vllm/vllm-openai"},
		Annotations: map[string]string{"io.kubernetes.container.ports": `[{"containerPort":8000,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]`},
	}
	standIn := func(annotations map[string]string) (StandIn, error) {
		launch, err := r.launchOf(context.Background(), createdContainer(t, r, annotations, config))
		var s StandIn
		if err == nil {
			err = json.Unmarshal([]byte(launch.Args[2]), &s)
		}
		return s, err
	}
	s, err := standIn(map[string]string{"sim.numawise.dev/ready": "false", "sim.numawise.dev/exit-code.main": "3", "sim.numawise.dev/exit-code": "4", "sim.numawise.dev/exit-after": "2s"})
	if err != nil || !s.NotReady || !s.Exits || s.ExitCode != 3 || s.ExitAfter.Seconds() != 2 {
		t.Errorf("annotated: %+v %v", s, err)
	}
	if len(s.Ports) != 1 || s.Ports[0] != 8000 {
		t.Errorf("ports: %v", s.Ports)
	}
	if s, err = standIn(nil); err != nil || !s.Exits || s.ExitCode != 0 {
		t.Errorf("a container that ends: %+v %v", s, err)
	}
	if _, err = standIn(map[string]string{"sim.numawise.dev/ready-after": "soon"}); err == nil || !strings.Contains(err.Error(), "not a duration") {
		t.Errorf("bad duration: %v", err)
	}
	launch, err := r.launchOf(context.Background(), createdContainer(t, r, map[string]string{"sim.numawise.dev/run": "process"}, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "vllm/vllm-openai"}, Command: []string{"python3"}, Args: []string{"gate.py"}}))
	if err != nil || strings.Join(launch.Args, " ") != "python3 gate.py" || launch.User != 2000 {
		t.Errorf("run as a process: %+v %v", launch, err)
	}
}

func TestLogLinesHaveTheCRIFormat(t *testing.T) {
	log := &containerLog{path: filepath.Join(t.TempDir(), "main", "0.log")}
	if err := log.open(); err != nil {
		t.Fatal(err)
	}
	stream := log.stream("stdout")
	for _, part := range []string{"one\ntw", "o\n", strings.Repeat("x", longestLogLine+1), "\nlast"} {
		if _, err := stream.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	stream.flush()
	log.close()
	content, err := os.ReadFile(log.path)
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		match := regexp.MustCompile(`^\d{4}-\d\d-\d\dT[0-9:.]+Z stdout ([FP]) (.*)$`).FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("line %.60q", line)
		}
		tags = append(tags, match[1]+match[2][:1])
	}
	if got := strings.Join(tags, " "); got != "Fo Ft Px Fx Fl" {
		t.Errorf("lines: %s", got)
	}
}

func TestWhichContainersEnd(t *testing.T) {
	var pod podLifecycle
	if err := json.Unmarshal([]byte(`{"spec":{"restartPolicy":"Always","initContainers":[{"name":"load"},{"name":"logs","restartPolicy":"Always"}]}}`), &pod); err != nil {
		t.Fatal(err)
	}
	if !pod.ends("load") || pod.ends("logs") || pod.ends("main") {
		t.Error("of a Deployment's pod only the plain init container ends")
	}
	pod.Spec.RestartPolicy = "Never"
	if !pod.ends("main") {
		t.Error("a Job's container ends")
	}
}
