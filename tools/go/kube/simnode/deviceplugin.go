package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"numawise.dev/tools/kube/simnode/machine"
)

// devicePlugin serves one resource to the kubelet, as the vendors' plugins do: no preferred allocation, registration again
// after each start of the kubelet (which deletes all plugin sockets).
type devicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource string
	devices  []*pluginapi.Device
	delay    time.Duration
}

func newDevicePlugin(resource string, devices []machine.Device, delayMS int) *devicePlugin {
	plugin := &devicePlugin{resource: resource, delay: time.Duration(delayMS) * time.Millisecond}
	for _, device := range devices {
		entry := &pluginapi.Device{ID: device.ID, Health: pluginapi.Healthy}
		if device.Healthy != nil && !*device.Healthy {
			entry.Health = pluginapi.Unhealthy
		}
		if len(device.NUMA) > 0 {
			entry.Topology = &pluginapi.TopologyInfo{}
			for _, node := range device.NUMA {
				entry.Topology.Nodes = append(entry.Topology.Nodes, &pluginapi.NUMANode{ID: node})
			}
		}
		plugin.devices = append(plugin.devices, entry)
	}
	return plugin
}

// run registers with every kubelet that appears until ctx ends.
func (p *devicePlugin) run(ctx context.Context) {
	var registeredWith string
	var server *grpc.Server
	for ctx.Err() == nil {
		if kubelet := kubeletSocket(); kubelet != "" && kubelet != registeredWith {
			if server != nil {
				server.Stop()
			}
			time.Sleep(p.delay)
			var err error
			if server, err = p.register(ctx); err != nil {
				log.Printf("device plugin %s: %v", p.resource, err)
			} else {
				registeredWith = kubelet
				log.Printf("device plugin %s registered with %d devices", p.resource, len(p.devices))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// kubeletSocket identifies the running kubelet's registration socket; "" while there is none.
func kubeletSocket() string {
	info, err := os.Stat(pluginapi.KubeletSocket)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino, info.ModTime().UnixNano())
}

func (p *devicePlugin) register(ctx context.Context) (*grpc.Server, error) {
	endpoint := "sim-" + strings.NewReplacer("/", "_", ".", "_").Replace(p.resource) + ".sock"
	path := filepath.Join(pluginapi.DevicePluginPath, endpoint)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	connection, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return server, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: p.resource, Options: &pluginapi.DevicePluginOptions{},
	})
	return server, err
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate answers as the vendors' plugins do: NVIDIA with an environment variable and device nodes (PASS_DEVICE_SPECS), AMD
// with device nodes alone.
func (p *devicePlugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		allocation := &pluginapi.ContainerAllocateResponse{}
		nodes := []string{"/dev/kfd"}
		nvidia := strings.HasPrefix(p.resource, "nvidia.com/")
		if nvidia {
			allocation.Envs = map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
			nodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
		}
		for i, device := range p.devices {
			for _, id := range container.DevicesIds {
				if device.ID != id {
					continue
				}
				if nvidia {
					nodes = append(nodes, fmt.Sprintf("/dev/nvidia%d", i))
				} else {
					nodes = append(nodes, fmt.Sprintf("/dev/dri/renderD%d", 128+i))
				}
			}
		}
		for _, node := range nodes {
			allocation.Devices = append(allocation.Devices, &pluginapi.DeviceSpec{HostPath: node, ContainerPath: node, Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, allocation)
	}
	return answer, nil
}

func (p *devicePlugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}
