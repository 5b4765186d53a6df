package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"numawise.dev/tools/kube/simnode/cri"
)

const defaultRunTime = 500 * time.Millisecond // of a stand-in for a container that ends

// runStandIn stands for a program that is not there: it answers HTTP on its ports, or ends as it is told.
func runStandIn(args []string) error {
	if len(args) != 1 {
		return errors.New("simnode stand-in: give its behaviour as JSON")
	}
	var standIn cri.StandIn
	if err := json.Unmarshal([]byte(args[0]), &standIn); err != nil {
		return err
	}
	return serveStandIn(standIn)
}

// runVLLM stands for `vllm serve MODEL ...` as the last step of a container that really ran up to it.
func runVLLM(args []string) error {
	standIn := cri.StandIn{Image: "vllm " + strings.Join(args, " "), Address: os.Getenv("SIM_POD_ADDRESS"), Ports: []int{8000}}
	for i, arg := range args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		if name == "--port" {
			port, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("vllm: --port %q is not a number", value)
			}
			standIn.Ports = []int{port}
		}
	}
	return serveStandIn(standIn)
}

func serveStandIn(standIn cri.StandIn) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	handler := standInHandler(standIn, time.Now())
	for _, port := range standIn.Ports {
		address := net.JoinHostPort(standIn.Address, strconv.Itoa(port))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		fmt.Printf("stand-in for %s answers on %s\n", standIn.Image, address)
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = server.Serve(listener) }()
	}
	if len(standIn.Ports) == 0 {
		fmt.Printf("stand-in for %s has no ports\n", standIn.Image)
	}
	if !standIn.Exits {
		<-ctx.Done()
		return nil
	}
	after := standIn.ExitAfter
	if after == 0 {
		after = defaultRunTime
	}
	select {
	case <-ctx.Done():
	case <-time.After(after):
	}
	if standIn.Message != "" {
		fmt.Println(standIn.Message)
		if standIn.MessageTo != "" {
			if err := os.WriteFile(standIn.MessageTo, []byte(standIn.Message), 0o644); err != nil {
				return err
			}
		}
	}
	if standIn.ExitCode != 0 {
		return exitStatus(standIn.ExitCode)
	}
	return nil
}

// standInHandler answers 200 on every path once ready, 503 before; /metrics and /v1/models in the form of vLLM's.
func standInHandler(standIn cri.StandIn, started time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if standIn.NotReady || time.Since(started) < standIn.ReadyIn {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		switch request.URL.Path {
		case "/metrics":
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			fmt.Fprint(w, "# HELP vllm:num_requests_running Number of requests in model execution batches.\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n")
		case "/v1/models":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"object":"list","data":[{"id":"stand-in","object":"model"}]}`)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
}
