//go:build !before134

package main

// Since 1.34: contexts for the configuration and the memory manager, and an admission handler for features of pods.

import (
	"context"
	_ "unsafe"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

//go:linkname linkedLoadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func linkedLoadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

// loadConfigFile decodes strictly (then leniently) and applies the defaults, those of evictionHard included.
func loadConfigFile(name string) (*kubeletconfig.KubeletConfiguration, error) {
	return linkedLoadConfigFile(context.Background(), name)
}

func (m *managers) startMemory(active func() []*v1.Pod, sources config.SourcesReady) error {
	return m.memory.Start(context.Background(), active, sources, nil, nil, containermap.NewContainerMap())
}

// admissionHandlers are those of NewMainKubelet, in its order, that can refuse a pod here.
func admissionHandlers(m *managers, object *v1.Node, critical lifecycle.AdmissionFailureHandler) []handler {
	return []handler{
		{"topologymanager", m.topology},
		{"predicate", m.predicate(object, critical)},
		{"podfeatures", lifecycle.NewPodFeaturesAdmitHandler()},
	}
}
