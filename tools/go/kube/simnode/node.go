package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a node may take to shut down before its processes are killed.
const stopGrace = 5 * time.Second

// runNode starts one node and waits for its end: cgroups of its own, then an init process in mount, process, IPC, host name
// and cgroup namespaces of its own. When this process dies, however it dies, the kernel ends the node.
func runNode(args []string) error {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	dir := flags.String("dir", "", "the node's folder, with node.json")
	group := flags.String("cgroup", "", "name of the node's control group, unique on this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	spec, err := readSpec(*dir)
	if err != nil {
		return err
	}
	if err := addLocalAddresses([]string{spec.IP + "/32"}); err != nil {
		return err
	}
	hierarchies, err := cgroupHierarchies("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	for _, h := range hierarchies {
		h.removeGroup(*group)
		if err := h.enterGroup(*group); err != nil {
			return fmt.Errorf("control group %s in %s: %w", *group, h.mountPoint, err)
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(executable, "init", "-dir", *dir)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := child.Start(); err != nil {
		return fmt.Errorf("namespaces of node %s: %w (root is needed)", *dir, err)
	}
	for _, h := range hierarchies {
		_ = h.leaveGroup()
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err = <-ended:
	case <-signals:
		_ = child.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(stopGrace):
			_ = child.Process.Kill()
			<-ended
		}
		err = nil
	}
	for _, h := range hierarchies {
		h.removeGroup(*group)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitStatus(max(exit.ExitCode(), 1))
	}
	return err
}

func mkdirAll(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func touch(path string) error {
	if err := mkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}
