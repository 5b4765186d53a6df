package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

func serveHTTP(listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second}
	return server.Serve(listener)
}

func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := r.running(request.ContainerId); err != nil {
		return nil, err
	}
	return r.streams.GetExec(request)
}

func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(request)
}

// ExecSync runs a command in a container and returns its output, as exec probes and lifecycle hooks need.
func (r *Runtime) ExecSync(ctx context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if request.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(request.Timeout)*time.Second)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	err := r.execIn(ctx, request.ContainerId, request.Cmd, nil, &stdout, &stderr)
	if ctx.Err() != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out after %d s", request.Cmd, request.Timeout)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exitCode(err)}, nil
}

// streamRuntime gives the streaming server the methods whose names RuntimeService has already.
type streamRuntime struct{ *Runtime }

func (s streamRuntime) Exec(ctx context.Context, id string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	var stderr io.Writer = errOut
	if tty || errOut == nil {
		stderr = out
	}
	err := s.execIn(ctx, id, command, in, out, stderr)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &utilexec.CodeExitError{Err: err, Code: int(exitCode(err))}
	}
	return err
}

func (s streamRuntime) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return status.Error(codes.Unimplemented, "attach: this runtime's containers have no standard input; use exec or logs")
}

func (s streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s.mu.Lock()
	sandbox, known := s.sandboxes[id]
	s.mu.Unlock()
	if !known {
		return status.Errorf(codes.NotFound, "pod sandbox %s not found", id)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(s.podAddress(sandbox), strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer connection.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]io.ReadWriter{{connection, stream}, {stream, connection}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	return nil
}

func (r *Runtime) running(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.containers[id]
	if !known {
		return nil, notFound(id)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is not running", c.config.GetMetadata().GetName())
	}
	return c, nil
}

// execIn runs a command in a running container's namespaces with its environment and user.
func (r *Runtime) execIn(ctx context.Context, id string, command []string, in io.Reader, out, errOut io.Writer) error {
	c, err := r.running(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	launch, pid := *c.launch, c.pid
	launch.CPUs, launch.Mems = r.cpus(c), r.mems(c)
	r.mu.Unlock()
	launch.Root, launch.Mounts, launch.Args = "", nil, command
	content, err := json.Marshal(launch)
	if err != nil {
		return err
	}
	arguments := []string{"-t", strconv.Itoa(pid), "-m", "-i", "-u"}
	if !launch.HostPID {
		arguments = append(arguments, "-p")
	}
	cmd := exec.Command("nsenter", append(arguments, "--", r.options.Launcher, "launch")...)
	cmd.Env = append(os.Environ(), LaunchVariable+"="+string(content))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	wait, err := r.options.Start(cmd)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = <-ended
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}
