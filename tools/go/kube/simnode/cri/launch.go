package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LaunchVariable is the environment variable in which a launcher finds its Launch as JSON.
const LaunchVariable = "SIM_LAUNCH"

const (
	defaultPath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	annotationRoot = "sim.numawise.dev/"
)

// Launch is what the first process of a container, or of an exec, does before it becomes the program.
type Launch struct {
	Root         string   `json:"root,omitempty"` // where to lay out the container's root; "" inside a running container
	StateDir     string   `json:"stateDir,omitempty"`
	Mounts       []Mount  `json:"mounts,omitempty"`
	Devices      []string `json:"devices,omitempty"`
	Privileged   bool     `json:"privileged,omitempty"`
	HostPID      bool     `json:"hostPID,omitempty"`
	ReadOnlyRoot bool     `json:"readOnlyRoot,omitempty"`
	Hostname     string   `json:"hostname,omitempty"`
	DNS          string   `json:"dns,omitempty"` // content of /etc/resolv.conf
	CPUs         string   `json:"cpus"`
	Mems         string   `json:"mems"`
	User         int      `json:"user"`
	Group        int      `json:"group"`
	Groups       []int    `json:"groups,omitempty"`
	Dir          string   `json:"dir"`
	Env          []string `json:"env"`
	Args         []string `json:"args"`
}

// Mount is a bind mount of a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// StandIn is how a stand-in behaves; durations are Go durations.
type StandIn struct {
	Image     string        `json:"image"`
	Address   string        `json:"address"`
	Ports     []int         `json:"ports"`
	NotReady  bool          `json:"notReady"`
	ReadyIn   time.Duration `json:"readyIn"`
	Exits     bool          `json:"exits"`
	ExitCode  int           `json:"exitCode"`
	ExitAfter time.Duration `json:"exitAfter"`
	Message   string        `json:"message"`
	MessageTo string        `json:"messageTo"`
}

// launchOf decides what runs in a container: the image's program or a stand-in.
func (r *Runtime) launchOf(ctx context.Context, c *container) (*Launch, error) {
	config, pod := c.config, c.sandbox.config
	security := config.GetLinux().GetSecurityContext()
	launch := &Launch{
		Root: filepath.Join(r.dir(c.id), "root"), StateDir: r.dir(c.id), Privileged: security.GetPrivileged(),
		HostPID:      security.GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_NODE,
		ReadOnlyRoot: security.GetReadonlyRootfs(), Hostname: pod.Hostname, DNS: resolvConf(pod.DnsConfig),
		CPUs: r.cpus(c), Mems: r.mems(c), User: int(r.options.Images.User(config.Image.Image)), Dir: config.WorkingDir,
	}
	if user := security.GetRunAsUser(); user != nil {
		launch.User = int(user.Value)
	}
	if group := security.GetRunAsGroup(); group != nil {
		launch.Group = int(group.Value)
	}
	for _, group := range security.GetSupplementalGroups() {
		launch.Groups = append(launch.Groups, int(group))
	}
	for _, mount := range config.Mounts {
		launch.Mounts = append(launch.Mounts, Mount{Source: mount.HostPath, Target: mount.ContainerPath, ReadOnly: mount.Readonly})
	}
	slices.SortStableFunc(launch.Mounts, func(a, b Mount) int {
		return strings.Count(path.Clean(a.Target), "/") - strings.Count(path.Clean(b.Target), "/")
	})
	for _, device := range config.Devices {
		launch.Devices = append(launch.Devices, device.ContainerPath)
	}
	launch.Env = r.environment(c)
	if r.runsProgram(c) {
		launch.Args = append(slices.Clone(config.Command), config.Args...)
		if len(launch.Args) == 0 {
			launch.Args = []string{"/bin/sh"}
			if strings.HasSuffix(Repository(config.Image.Image), "/python") {
				launch.Args = []string{"python3"}
			}
		}
		return launch, nil
	}
	standIn, err := r.standInOf(ctx, c)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(standIn)
	if err != nil {
		return nil, err
	}
	launch.Args = []string{r.options.Launcher, "stand-in", string(content)}
	return launch, nil
}

func (r *Runtime) runsProgram(c *container) bool {
	switch c.annotation("run") {
	case "process":
		return true
	case "stand-in":
		return false
	}
	return r.options.Images.IsProcess(c.config.Image.Image)
}

// annotation reads sim.numawise.dev/KEY.CONTAINER, else sim.numawise.dev/KEY, of the pod, else SIM_NUMAWISE_KEY of the
// container's environment: a stack file sets a model's environment, and not its pods' annotations.
func (c *container) annotation(key string) string {
	annotations := c.sandbox.config.Annotations
	if value, found := annotations[annotationRoot+key+"."+c.config.GetMetadata().GetName()]; found {
		return value
	}
	if value, found := annotations[annotationRoot+key]; found {
		return value
	}
	name := "SIM_NUMAWISE_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
	for _, variable := range c.config.GetEnvs() {
		if variable.GetKey() == name {
			return string(variable.GetValue())
		}
	}
	return ""
}

func (r *Runtime) standInOf(ctx context.Context, c *container) (*StandIn, error) {
	s := &StandIn{Image: c.config.Image.Image, Address: r.podAddress(c.sandbox), NotReady: c.annotation("ready") == "false"}
	var ports []struct {
		ContainerPort int
		Protocol      string
	}
	if text := c.config.Annotations["io.kubernetes.container.ports"]; text != "" {
		if err := json.Unmarshal([]byte(text), &ports); err != nil {
			return nil, fmt.Errorf("container ports %q: %w", text, err)
		}
	}
	for _, port := range ports {
		if port.Protocol == "" || port.Protocol == "TCP" {
			s.Ports = append(s.Ports, port.ContainerPort)
		}
	}
	for key, duration := range map[string]*time.Duration{"ready-after": &s.ReadyIn, "exit-after": &s.ExitAfter} {
		if text := c.annotation(key); text != "" {
			value, err := time.ParseDuration(text)
			if err != nil {
				return nil, fmt.Errorf("annotation %s%s: %q is not a duration such as 5s", annotationRoot, key, text)
			}
			*duration = value
		}
	}
	if text := c.annotation("exit-code"); text != "" {
		code, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %sexit-code: %q is not a number", annotationRoot, text)
		}
		s.Exits, s.ExitCode = true, code
	} else if r.options.Pods != nil {
		ends, err := r.options.Pods.ContainerEnds(ctx, c.sandbox.config.GetMetadata(), c.config.GetMetadata().GetName())
		if err != nil {
			return nil, err
		}
		s.Exits = ends
	}
	s.Message, s.MessageTo = c.annotation("message"), c.config.Annotations["io.kubernetes.container.terminationMessagePath"]
	return s, nil
}

func (r *Runtime) podAddress(s *sandbox) string {
	if s.address.IsValid() {
		return s.address.String()
	}
	return r.options.NodeIP
}

func (r *Runtime) environment(c *container) []string {
	env, hasPath, hasHome := []string{"SIM_POD_ADDRESS=" + r.podAddress(c.sandbox)}, false, false
	for _, variable := range c.config.Envs {
		env = append(env, variable.Key+"="+string(variable.Value))
		hasPath, hasHome = hasPath || variable.Key == "PATH", hasHome || variable.Key == "HOME"
	}
	if !hasPath {
		env = append(env, "PATH=/.sim/bin:/.sim/python/bin:"+defaultPath)
	}
	if !hasHome {
		env = append(env, "HOME=/tmp")
	}
	// A Python with a shared library would take the machine's own of another release: its run path is not there.
	env = append(env, "LD_LIBRARY_PATH=/.sim/python/lib")
	return append(env, "HOSTNAME="+c.sandbox.config.Hostname)
}

func resolvConf(dns *runtimeapi.DNSConfig) string {
	var text strings.Builder
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if searches := dns.GetSearches(); len(searches) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(searches, " "))
	}
	if options := dns.GetOptions(); len(options) > 0 {
		fmt.Fprintf(&text, "options %s\n", strings.Join(options, " "))
	}
	return text.String()
}

func (r *Runtime) cpus(c *container) string {
	if c.resources.CpusetCpus != "" {
		return c.resources.CpusetCpus
	}
	return r.options.CPUs
}

func (r *Runtime) mems(c *container) string {
	if c.resources.CpusetMems != "" {
		return c.resources.CpusetMems
	}
	return r.options.Mems
}

// writeCgroupFiles writes what the container sees of its control group; running containers see changes at once.
func (r *Runtime) writeCgroupFiles(c *container) error {
	dir := filepath.Join(r.dir(c.id), "cgroup")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	limit := "max"
	if bytes := c.resources.MemoryLimitInBytes; bytes > 0 {
		limit = strconv.FormatInt(bytes, 10)
	}
	quota := "max 100000"
	if c.resources.CpuQuota > 0 {
		quota = fmt.Sprintf("%d %d", c.resources.CpuQuota, c.resources.CpuPeriod)
	}
	for name, content := range map[string]string{
		"cpuset.cpus": c.resources.CpusetCpus, "cpuset.cpus.effective": r.cpus(c), "cpuset.mems": c.resources.CpusetMems,
		"cpuset.mems.effective": r.mems(c), "memory.max": limit, "cpu.max": quota, "cgroup.controllers": "cpuset cpu io memory hugetlb pids",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// command is the launcher in new namespaces, its output going to the container's log.
func (r *Runtime) command(c *container, launch *Launch) (*exec.Cmd, error) {
	content, err := json.Marshal(launch)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.options.Launcher, "launch")
	cmd.Env = []string{LaunchVariable + "=" + string(content)}
	cmd.WaitDelay = 2 * time.Second
	if c.log != nil {
		cmd.Stdout, cmd.Stderr = c.log.stream("stdout"), c.log.stream("stderr")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC, Setsid: true}
	if !launch.HostPID {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID
	}
	if launch.Hostname != "" {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUTS
	}
	return cmd, nil
}
