package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	restartDelay     = time.Second
	serviceStopGrace = 10 * time.Second
	unitDirPattern   = "/etc/systemd/system/%s.service.d/*.conf"
)

var errNoService = errors.New("unit not found")

// service is a unit of the node: the kubelet, or a transient one of systemd-run.
type service struct {
	name      string
	command   []string
	delay     time.Duration
	restart   bool
	wanted    bool
	process   *os.Process
	startedAt int64         // of the process, microseconds of the monotonic clock
	ended     chan struct{} // closed when the running process has ended
	stopping  chan struct{} // closed when the service is to stop
	restarts  int
	lastState string // how the last process ended
}

// serviceManager does the part of systemd that a kubelet's host needs: start, stop, restart when it ends, transient units.
type serviceManager struct {
	mu       sync.Mutex
	services map[string]*service
	children *reaper
	output   io.Writer
}

func newServiceManager(children *reaper, output io.Writer, spec *nodeSpec) *serviceManager {
	command := append([]string{partsDir + "/kubelet"}, spec.KubeletFlags...)
	return &serviceManager{
		services: map[string]*service{"kubelet": {name: "kubelet", command: command, restart: true}},
		children: children, output: output,
	}
}

type serviceRequest struct {
	Verb    string        `json:"verb"`
	Unit    string        `json:"unit"`
	Command []string      `json:"command,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
}

type serviceAnswer struct {
	Status int    `json:"status"`
	Output string `json:"output"`
}

func (m *serviceManager) serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				var request serviceRequest
				if err := json.NewDecoder(connection).Decode(&request); err != nil {
					return
				}
				_ = json.NewEncoder(connection).Encode(m.answer(request))
			}()
		}
	}()
	return nil
}

func (m *serviceManager) answer(request serviceRequest) serviceAnswer {
	unit := strings.TrimSuffix(strings.TrimSuffix(request.Unit, ".service"), ".timer")
	var err error
	switch request.Verb {
	case "start":
		err = m.start(unit)
	case "stop":
		err = m.stop(unit)
	case "restart", "try-restart", "reload-or-restart":
		if err = m.stop(unit); err == nil {
			err = m.start(unit)
		}
	case "run":
		err = m.run(unit, request.Command, request.Delay)
	case "daemon-reload", "enable", "disable", "reset-failed":
	case "is-active", "is-failed", "status", "show":
		return m.describe(request.Verb, unit)
	default:
		err = fmt.Errorf("verb %q is not one that this node knows", request.Verb)
	}
	if err != nil {
		status := 1
		if errors.Is(err, errNoService) {
			status = 5
		}
		return serviceAnswer{Status: status, Output: err.Error()}
	}
	return serviceAnswer{}
}

func (m *serviceManager) describe(verb, unit string) serviceAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.services[unit]
	if !known {
		return serviceAnswer{Status: 4, Output: "inactive"}
	}
	state, pid := "inactive", 0
	switch {
	case s.process != nil:
		state, pid = "active", s.process.Pid
	case s.wanted:
		state = "activating"
	case s.lastState != "" && s.lastState != "exit status 0" && s.restart:
		state = "failed"
	}
	switch verb {
	case "is-failed":
		return serviceAnswer{Status: boolStatus(state == "failed", 1), Output: state}
	case "is-active":
		return serviceAnswer{Status: boolStatus(state == "active", 3), Output: state}
	}
	shown := []string{
		"Id=" + unit + ".service", "ActiveState=" + state, fmt.Sprint("MainPID=", pid), fmt.Sprint("NRestarts=", s.restarts),
		fmt.Sprint("ActiveEnterTimestampMonotonic=", s.startedAt), "Result=" + s.lastState,
	}
	return serviceAnswer{Output: strings.Join(shown, "\n")}
}

func monotonicMicroseconds() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return now.Nano() / 1000
}

func boolStatus(ok bool, otherwise int) int {
	if ok {
		return 0
	}
	return otherwise
}

func (m *serviceManager) run(unit string, command []string, delay time.Duration) error {
	m.mu.Lock()
	if old, exists := m.services[unit]; exists && (old.process != nil || old.wanted) {
		m.mu.Unlock()
		return fmt.Errorf("unit %s.service is already loaded", unit)
	}
	m.services[unit] = &service{name: unit, command: command, delay: delay}
	m.mu.Unlock()
	return m.start(unit)
}

func (m *serviceManager) start(unit string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.services[unit]
	if !known {
		return errNoService
	}
	if s.wanted {
		return nil
	}
	s.wanted, s.restarts, s.lastState = true, 0, ""
	s.stopping = make(chan struct{})
	s.ended = make(chan struct{})
	go m.keepRunning(s, s.stopping, s.ended)
	return nil
}

// keepRunning runs the service's process, again and again where it restarts, until it is told to stop.
func (m *serviceManager) keepRunning(s *service, stopping <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	wait := s.delay
	for {
		select {
		case <-stopping:
			return
		case <-time.After(wait):
		}
		wait = restartDelay
		err := m.runOnce(s, stopping)
		m.mu.Lock()
		s.process, s.lastState = nil, "exit status 0"
		if err != nil {
			s.lastState = err.Error()
		}
		select {
		case <-stopping:
		default:
			log.Printf("%s ended: %s", s.name, s.lastState)
			if s.restart {
				s.restarts++
				m.mu.Unlock()
				continue
			}
			s.wanted = false
		}
		m.mu.Unlock()
		return
	}
}

func (m *serviceManager) runOnce(s *service, stopping <-chan struct{}) error {
	for _, before := range startPre(s.name) {
		step := exec.Command("/bin/sh", "-c", before)
		step.Stdout, step.Stderr, step.Env = m.output, m.output, hostEnvironment()
		wait, err := m.children.start(step)
		if err == nil {
			err = wait()
		}
		if err != nil {
			return fmt.Errorf("ExecStartPre=%s: %w", before, err)
		}
	}
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = m.output, m.output, hostEnvironment(), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	m.mu.Lock()
	wait, err := m.children.start(cmd)
	if err == nil {
		s.process, s.startedAt = cmd.Process, monotonicMicroseconds()
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	finished := make(chan struct{})
	go func() {
		select {
		case <-finished:
			return
		case <-stopping:
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-finished:
		case <-time.After(serviceStopGrace):
			_ = cmd.Process.Kill()
		}
	}()
	err = wait()
	close(finished)
	return err
}

func (m *serviceManager) stop(unit string) error {
	m.mu.Lock()
	s, known := m.services[unit]
	if !known {
		m.mu.Unlock()
		return errNoService
	}
	if !s.wanted {
		m.mu.Unlock()
		return nil
	}
	s.wanted = false
	close(s.stopping)
	ended := s.ended
	m.mu.Unlock()
	<-ended
	return nil
}

func (m *serviceManager) stopAll() {
	m.mu.Lock()
	names := make([]string, 0, len(m.services))
	for name := range m.services {
		names = append(names, name)
	}
	m.mu.Unlock()
	sort.Strings(names)
	for _, name := range names {
		_ = m.stop(name)
	}
}

// startPre lists the ExecStartPre commands of a unit's drop-ins, in order.
func startPre(unit string) []string {
	files, err := filepath.Glob(fmt.Sprintf(unitDirPattern, unit))
	if err != nil {
		return nil
	}
	sort.Strings(files)
	var commands []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(content), "\n") {
			if command, found := strings.CutPrefix(strings.TrimSpace(line), "ExecStartPre="); found && command != "" {
				commands = append(commands, strings.TrimPrefix(command, "-"))
			}
		}
	}
	return commands
}

func hostEnvironment() []string {
	return []string{"PATH=" + partsDir + "/bin:" + partsDir + "/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}
}
