package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	v1beta1conversion "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
)

// layers are what a kubelet's configuration comes from: the text of --config, files of --config-dir by relative path, flags.
type layers struct {
	Base    *string            `json:"base"`
	Dropins *map[string]string `json:"dropins"`
	Flags   []string           `json:"flags"`
}

type merged struct {
	Configuration *v1beta1.KubeletConfiguration `json:"configuration,omitempty"`
	Error         string                        `json:"error,omitempty"`
}

func runMerge(_ []string, in io.Reader, out io.Writer) error {
	var asked []layers
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return err
	}
	answers := []merged{}
	for _, l := range asked {
		dir, err := os.MkdirTemp("", "kubeletanswers")
		if err != nil {
			return err
		}
		configuration, err := l.merge(dir)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err != nil {
			answers = append(answers, merged{Error: strings.ReplaceAll(err.Error(), dir, "")})
		} else {
			answers = append(answers, merged{Configuration: configuration})
		}
	}
	return write(out, answers)
}

// merge follows RunE of cmd/kubelet/app/server.go up to the flags.
func (l layers) merge(dir string) (found *v1beta1.KubeletConfiguration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	kubelet, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	if l.Base != nil {
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(*l.Base), 0o600); err != nil {
			return nil, err
		}
		if kubelet, err = loadConfigFile(path); err != nil {
			return nil, err
		}
	}
	if l.Dropins != nil {
		folder := filepath.Join(dir, "config.d")
		for name, text := range *l.Dropins {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		if _, err := linkedMerge(kubelet, folder); err != nil {
			return nil, err
		}
	}
	if err := linkedFlagPrecedence(kubelet, l.Flags); err != nil {
		return nil, err
	}
	return external(kubelet)
}

// external is a configuration in the form of v1beta1.
func external(kubelet *kubeletconfig.KubeletConfiguration) (*v1beta1.KubeletConfiguration, error) {
	found := &v1beta1.KubeletConfiguration{}
	return found, v1beta1conversion.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(kubelet, found, nil)
}
