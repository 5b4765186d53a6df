// Package cri is a small container runtime for simulated nodes: the CRI of Kubernetes over a unix socket. Every container is
// a process in namespaces of its own with the mounts, environment and user that the kubelet asked for; its program is either
// the image's own (run from the machine's software) or a stand-in that answers HTTP on the container's ports.
package cri

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Options of a runtime. Start starts a command and returns the function that waits for its end.
type Options struct {
	NodeIP    string
	PodPrefix string // addresses of pods, such as 10.244.1.0/24
	Images    ImageRules
	CPUs      string // all CPUs of the machine, as a list
	Mems      string // all NUMA nodes, as a list
	StateDir  string
	Launcher  string // this program's path, on the node and in each container
	Start     func(*exec.Cmd) (func() error, error)
	Pods      PodReader
}

// Runtime serves RuntimeService and ImageService.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	options    Options
	mu         sync.Mutex
	serial     int
	addresses  map[netip.Addr]bool
	prefix     netip.Prefix
	sandboxes  map[string]*sandbox
	containers map[string]*container
	streams    streaming.Server
}

type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	ready   bool
	created int64
	address netip.Addr // invalid for pods on the node's own network
}

// NewRuntime checks the options.
func NewRuntime(options Options) (*Runtime, error) {
	prefix, err := netip.ParsePrefix(options.PodPrefix)
	if err != nil {
		return nil, fmt.Errorf("pod_prefix: %w", err)
	}
	return &Runtime{
		options: options, prefix: prefix, addresses: map[netip.Addr]bool{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}, nil
}

// Serve listens on a unix socket, and on a free port of the node for exec, logs and port-forward streams, until ctx ends.
func (r *Runtime) Serve(ctx context.Context, socket string) error {
	streamListener, err := net.Listen("tcp", net.JoinHostPort(r.options.NodeIP, "0"))
	if err != nil {
		return err
	}
	config := streaming.DefaultConfig
	config.Addr = streamListener.Addr().String()
	if r.streams, err = streaming.NewServer(config, streamRuntime{r}); err != nil {
		return err
	}
	go func() { _ = serveHTTP(streamListener, r.streams) }()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	return nil
}

// newID makes an id as long as the kubelet's tools expect. The caller holds the lock.
func (r *Runtime) newID() string {
	r.serial++
	return fmt.Sprintf("%016x%048x", time.Now().UnixNano(), r.serial)
}

func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "simnode", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "nvidia"}},
	}, nil
}

func (r *Runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func onNodeNetwork(config *runtimeapi.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (r *Runtime) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: r.newID(), config: request.Config, ready: true, created: time.Now().UnixNano()}
	if !onNodeNetwork(request.Config) {
		address, err := r.freeAddress()
		if err != nil {
			return nil, err
		}
		s.address = address
		r.addresses[address] = true
	}
	if dir := request.Config.LogDirectory; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	r.sandboxes[s.id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// freeAddress takes the first address of the prefix that no sandbox holds, after the network's and the gateway's.
func (r *Runtime) freeAddress() (netip.Addr, error) {
	for address := r.prefix.Addr().Next().Next(); r.prefix.Contains(address); address = address.Next() {
		if !r.addresses[address] {
			return address, nil
		}
	}
	return netip.Addr{}, status.Errorf(codes.ResourceExhausted, "no free pod address in %s", r.prefix)
}

func (r *Runtime) StopPodSandbox(ctx context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	s, known := r.sandboxes[request.PodSandboxId]
	var running []string
	for id, c := range r.containers {
		if c.sandbox.id == request.PodSandboxId && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = append(running, id)
		}
	}
	r.mu.Unlock()
	if !known {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	for _, id := range running {
		if _, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.ready {
		// The kubelet stops a sandbox again when it removes it: by then a newer pod may hold the address.
		delete(r.addresses, s.address)
	}
	s.ready = false
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) RemovePodSandbox(ctx context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: request.PodSandboxId}); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.containers {
		if c.sandbox.id == request.PodSandboxId {
			r.forget(id)
		}
	}
	delete(r.sandboxes, request.PodSandboxId)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (r *Runtime) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.sandboxes[request.PodSandboxId]
	if !known {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %s not found", request.PodSandboxId)
	}
	network := &runtimeapi.PodSandboxNetworkStatus{}
	if s.address.IsValid() {
		network.Ip = s.address.String()
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created, Network: network,
		Labels: s.config.Labels, Annotations: s.config.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}}, nil
}

func (r *Runtime) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if filter.GetId() != "" && filter.GetId() != s.id || filter.GetState() != nil && filter.GetState().State != s.state() ||
			!matchesLabels(filter.GetLabelSelector(), s.config.Labels) {
			continue
		}
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created, Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	return answer, nil
}

func matchesLabels(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
