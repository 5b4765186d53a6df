package cri

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodReader knows what the CRI does not tell: whether a container is one that is expected to end.
type PodReader interface {
	ContainerEnds(ctx context.Context, pod *runtimeapi.PodSandboxMetadata, container string) (bool, error)
}

// APIPodReader reads pods from the API server as the node.
type APIPodReader struct {
	Server string
	client *http.Client
}

// NewAPIPodReader reads the node's identity.
func NewAPIPodReader(server, caFile, certificateFile, keyFile string) (*APIPodReader, error) {
	pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: holds no certificate", caFile)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	return &APIPodReader{Server: server, client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// ContainerEnds is true for init containers that are no sidecars, and for all containers of pods that do not restart.
func (a *APIPodReader) ContainerEnds(ctx context.Context, pod *runtimeapi.PodSandboxMetadata, container string) (bool, error) {
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s", a.Server, pod.Namespace, pod.Name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("pod %s/%s: %s", pod.Namespace, pod.Name, response.Status)
	}
	var found podLifecycle
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return false, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return found.ends(container), nil
}

type podLifecycle struct {
	Spec struct {
		RestartPolicy  string `json:"restartPolicy"`
		InitContainers []struct {
			Name          string `json:"name"`
			RestartPolicy string `json:"restartPolicy"`
		} `json:"initContainers"`
	} `json:"spec"`
}

func (p *podLifecycle) ends(container string) bool {
	for _, init := range p.Spec.InitContainers {
		if init.Name == container {
			return init.RestartPolicy != "Always"
		}
	}
	return p.Spec.RestartPolicy == "Never" || p.Spec.RestartPolicy == "OnFailure"
}
