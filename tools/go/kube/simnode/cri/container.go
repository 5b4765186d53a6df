package cri

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type container struct {
	id        string
	config    *runtimeapi.ContainerConfig
	sandbox   *sandbox
	resources *runtimeapi.LinuxContainerResources
	state     runtimeapi.ContainerState
	created   int64
	started   int64
	finished  int64
	exitCode  int32
	reason    string
	message   string
	pid       int
	launch    *Launch // set once started
	log       *containerLog
	ended     chan struct{} // closed when the process has ended
}

func notFound(id string) error { return status.Errorf(codes.NotFound, "container %s not found", id) }

func (r *Runtime) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.sandboxes[request.PodSandboxId]
	if !known {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %s not found", request.PodSandboxId)
	}
	c := &container{
		id: r.newID(), config: request.Config, sandbox: s, state: runtimeapi.ContainerState_CONTAINER_CREATED,
		created: time.Now().UnixNano(), resources: request.Config.GetLinux().GetResources(), ended: make(chan struct{}),
	}
	if c.resources == nil {
		c.resources = &runtimeapi.LinuxContainerResources{}
	}
	if s.config.LogDirectory != "" && request.Config.LogPath != "" {
		c.log = &containerLog{path: filepath.Join(s.config.LogDirectory, request.Config.LogPath)}
	}
	if err := os.MkdirAll(r.dir(c.id), 0o755); err != nil {
		return nil, err
	}
	if err := r.writeCgroupFiles(c); err != nil {
		return nil, err
	}
	r.containers[c.id] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (r *Runtime) dir(id string) string { return filepath.Join(r.options.StateDir, id) }

func (r *Runtime) StartContainer(ctx context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	c, known := r.containers[request.ContainerId]
	r.mu.Unlock()
	if !known {
		return nil, notFound(request.ContainerId)
	}
	launch, err := r.launchOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.log != nil {
		if err := c.log.open(); err != nil {
			return nil, err
		}
	}
	cmd, err := r.command(c, launch)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait, err := r.options.Start(cmd)
	if err != nil {
		return nil, status.Errorf(codes.Unknown, "start container %s: %v", c.config.GetMetadata().GetName(), err)
	}
	c.launch = launch
	c.pid, c.state, c.started = cmd.Process.Pid, runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	go func() {
		waitErr := wait()
		for _, stream := range []any{cmd.Stdout, cmd.Stderr} {
			if lines, ok := stream.(*logStream); ok {
				lines.flush()
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		c.state, c.finished, c.pid = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), 0
		c.exitCode, c.reason = exitCode(waitErr), "Completed"
		if c.exitCode != 0 {
			c.reason = "Error"
		}
		close(c.ended)
	}()
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *Runtime) StopContainer(_ context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c, known := r.containers[request.ContainerId]
	if !known || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	pid, ended := c.pid, c.ended
	r.mu.Unlock()
	if request.Timeout > 0 {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-ended:
			return &runtimeapi.StopContainerResponse{}, nil
		case <-time.After(time.Duration(request.Timeout) * time.Second):
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-ended
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *Runtime) RemoveContainer(ctx context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if _, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: request.ContainerId}); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(request.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// forget drops a container that does not run. The caller holds the lock.
func (r *Runtime) forget(id string) {
	if c, known := r.containers[id]; known {
		if c.log != nil {
			c.log.close()
		}
		delete(r.containers, id)
		if err := os.RemoveAll(r.dir(id)); err != nil {
			log.Printf("container %s: %v", id, err)
		}
	}
}

func (r *Runtime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		if f := request.GetFilter(); f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			f.GetState() != nil && f.GetState().State != c.state || !matchesLabels(f.GetLabelSelector(), c.config.Labels) {
			continue
		}
		answer.Containers = append(answer.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.config.Image.Image,
			ImageId: c.config.Image.Image, State: c.state, CreatedAt: c.created, Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return answer, nil
}

func (r *Runtime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	answer := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished,
		ExitCode: c.exitCode, Image: c.config.Image, ImageRef: c.config.Image.Image, ImageId: c.config.Image.Image, Reason: c.reason, Message: c.message,
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts,
		Resources: &runtimeapi.ContainerResources{Linux: c.resources},
	}
	if c.log != nil {
		answer.LogPath = c.log.path
	}
	return &runtimeapi.ContainerStatusResponse{Status: answer}, nil
}

// UpdateContainerResources keeps what is given and leaves the rest, as control groups do.
func (r *Runtime) UpdateContainerResources(_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	update := request.GetLinux()
	if update == nil {
		return &runtimeapi.UpdateContainerResourcesResponse{}, nil
	}
	if update.CpusetCpus != "" {
		c.resources.CpusetCpus = update.CpusetCpus
	}
	if update.CpusetMems != "" {
		c.resources.CpusetMems = update.CpusetMems
	}
	if update.CpuShares != 0 {
		c.resources.CpuShares = update.CpuShares
	}
	if update.CpuQuota != 0 {
		c.resources.CpuQuota, c.resources.CpuPeriod = update.CpuQuota, update.CpuPeriod
	}
	if update.MemoryLimitInBytes != 0 {
		c.resources.MemoryLimitInBytes = update.MemoryLimitInBytes
	}
	if err := r.writeCgroupFiles(c); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (r *Runtime) ReopenContainerLog(_ context.Context, request *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	if c.log != nil {
		if err := c.log.open(); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (r *Runtime) ContainerStats(_ context.Context, request *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

func (r *Runtime) ListContainerStats(_ context.Context, request *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.containers {
		if f := request.GetFilter(); f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			!matchesLabels(f.GetLabelSelector(), c.config.Labels) {
			continue
		}
		answer.Stats = append(answer.Stats, c.stats())
	}
	return answer, nil
}

// stats reports no use: nothing here measures it.
func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes:    &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations},
		Cpu:           &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{}},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{}},
	}
}

func exitCode(err error) int32 {
	var exit interface {
		ExitCode() int
		Sys() any
	}
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		return 255
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(exit.ExitCode())
}
