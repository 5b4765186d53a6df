package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"numawise.dev/tools/kube/simnode/cri"
	"numawise.dev/tools/kube/simnode/machine"
)

// Paths inside a node.
const (
	partsDir      = "/.sim"             // simnode itself, stand-ins of programs (bin), a Python (python)
	controlSocket = "/run/sim/control"  // systemctl and systemd-run speak to the node's init here
	runtimeSocket = "/run/sim/cri.sock" // the container runtime
	dropInDir     = "/etc/kubernetes/kubelet.conf.d"
)

// nodeSpec is node.json, written by the cluster manager.
type nodeSpec struct {
	Name            string                      `json:"name"`
	IP              string                      `json:"ip"`
	PodPrefix       string                      `json:"pod_prefix"`
	Machine         machine.Machine             `json:"machine"`
	Devices         map[string][]machine.Device `json:"devices"`
	RegisterAfterMS int                         `json:"device_registration_delay_ms"`
	APIServer       string                      `json:"api_server"`
	Kubelet         string                      `json:"kubelet_binary"`
	KubeletFlags    []string                    `json:"kubelet_flags"`
	SystemUUID      string                      `json:"system_uuid"`
	Python          string                      `json:"python_prefix"`
	Shared          []sharedFolder              `json:"shared_folders"`
	Images          cri.ImageRules              `json:"images"`
}

type sharedFolder struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

func readSpec(dir string) (*nodeSpec, error) {
	path := filepath.Join(dir, "node.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	spec := &nodeSpec{}
	if err := json.Unmarshal(content, spec); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := spec.Machine.Validate(); err != nil {
		return nil, fmt.Errorf("node %s: %w", spec.Name, err)
	}
	return spec, nil
}
