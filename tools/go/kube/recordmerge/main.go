// recordmerge answers with the kubelet's own code which configuration is in force for a base file, drop-in files and flags. It is
// only used to record fixtures (tests/kubelet/record_merge.py); nothing of the project runs it.
//
// Standard input: a JSON array of {"base": "text" or null, "dropins": {"relative/path": "text"} or null, "flags": ["--x=y"]}. Output:
// per entry {"configuration": {...}} in the form of v1beta1, or {"error": "..."}.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	_ "unsafe"

	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	v1beta1conversion "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
)

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(kubeletConfig *kubeletconfig.KubeletConfiguration, kubeletDropInConfigDir string) ([]string, error)

//go:linkname kubeletConfigFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletConfigFlagPrecedence(kc *kubeletconfig.KubeletConfiguration, args []string) error

type scenario struct {
	Base    *string            `json:"base"`
	Dropins *map[string]string `json:"dropins"`
	Flags   []string           `json:"flags"`
}

type answer struct {
	Configuration *v1beta1.KubeletConfiguration `json:"configuration,omitempty"`
	Error         string                        `json:"error,omitempty"`
}

// effective follows RunE of cmd/kubelet/app/server.go up to the flags.
func effective(s scenario, dir string) (out *v1beta1.KubeletConfiguration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	kc, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	if s.Base != nil {
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(*s.Base), 0o600); err != nil {
			return nil, err
		}
		if kc, err = loadConfigFile(context.Background(), path); err != nil {
			return nil, err
		}
	}
	if s.Dropins != nil {
		folder := filepath.Join(dir, "config.d")
		for name, text := range *s.Dropins {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		if _, err := mergeKubeletConfigurations(kc, folder); err != nil {
			return nil, err
		}
	}
	if err := kubeletConfigFlagPrecedence(kc, s.Flags); err != nil {
		return nil, err
	}
	out = &v1beta1.KubeletConfiguration{}
	return out, v1beta1conversion.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(kc, out, nil)
}

func main() {
	var scenarios []scenario
	if err := json.NewDecoder(os.Stdin).Decode(&scenarios); err != nil {
		fmt.Fprintln(os.Stderr, "recordmerge:", err)
		os.Exit(1)
	}
	answers := []answer{}
	for _, s := range scenarios {
		dir, err := os.MkdirTemp("", "recordmerge")
		if err != nil {
			fmt.Fprintln(os.Stderr, "recordmerge:", err)
			os.Exit(1)
		}
		kc, err := effective(s, dir)
		os.RemoveAll(dir)
		if err != nil {
			answers = append(answers, answer{Error: err.Error()})
			continue
		}
		answers = append(answers, answer{Configuration: kc})
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, "recordmerge:", err)
		os.Exit(1)
	}
}
