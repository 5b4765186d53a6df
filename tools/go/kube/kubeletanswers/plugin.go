package main

import (
	"context"
	"slices"
	"sort"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plugin as the device manager sees it, in this process instead of behind a socket.
type plugin struct {
	pluginapi.DevicePluginClient
	resource string
	rank     map[string]int
	ordered  bool
}

// newPlugin makes a plugin and the list of devices that it would send.
func newPlugin(resource string, devices []device, ordered bool) (*plugin, *pluginapi.ListAndWatchResponse) {
	p := &plugin{resource: resource, rank: map[string]int{}, ordered: ordered}
	listed := &pluginapi.ListAndWatchResponse{}
	for i, d := range devices {
		p.rank[d.ID] = i
		entry := &pluginapi.Device{ID: d.ID, Health: pluginapi.Healthy}
		if d.Healthy != nil && !*d.Healthy {
			entry.Health = pluginapi.Unhealthy
		}
		for _, id := range d.NUMA {
			if entry.Topology == nil {
				entry.Topology = &pluginapi.TopologyInfo{}
			}
			entry.Topology.Nodes = append(entry.Topology.Nodes, &pluginapi.NUMANode{ID: id})
		}
		listed.Devices = append(listed.Devices, entry)
	}
	return p, listed
}

func (p *plugin) API() pluginapi.DevicePluginClient { return p }
func (p *plugin) Resource() string                  { return p.resource }
func (p *plugin) SocketPath() string                { return "/" + p.resource }

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: p.ordered}, nil
}

func (p *plugin) GetPreferredAllocation(_ context.Context, in *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, request := range in.ContainerRequests {
		ids, size := slices.Clone(request.MustIncludeDeviceIDs), int(request.AllocationSize)
		available := slices.Clone(request.AvailableDeviceIDs)
		sort.Slice(available, func(i, j int) bool { return p.rank[available[i]] < p.rank[available[j]] })
		for _, id := range available {
			if len(ids) < size && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

func (p *plugin) Allocate(_ context.Context, in *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for range in.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return out, nil
}
