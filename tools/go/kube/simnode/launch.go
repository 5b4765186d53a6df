package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"

	"numawise.dev/tools/kube/simnode/cri"
	"numawise.dev/tools/kube/simnode/machine"
)

const (
	cannotStart      = 128 // as container runtimes report a container that they could not start
	noSuchExecutable = 127
)

// runLaunch is the first process of a container, or of an exec into one: it lays out the container's root, takes the user
// and becomes the program. Its process id stays, so what it puts at /proc/self/status is what the program reads there.
func runLaunch([]string) error {
	var launch cri.Launch
	if err := json.Unmarshal([]byte(os.Getenv(cri.LaunchVariable)), &launch); err != nil {
		return fmt.Errorf("%s: %w", cri.LaunchVariable, err)
	}
	if err := becomeProgram(&launch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, os.ErrNotExist) {
			return exitStatus(noSuchExecutable)
		}
		return exitStatus(cannotStart)
	}
	return nil
}

func becomeProgram(launch *cri.Launch) error {
	if launch.Root != "" {
		if err := layOutContainer(launch); err != nil {
			return err
		}
	}
	if launch.Dir == "" {
		launch.Dir = "/"
	}
	if err := os.Chdir(launch.Dir); err != nil {
		return err
	}
	program, err := lookUp(launch.Args[0], launch.Env)
	if err != nil {
		return err
	}
	file, err := showStatus(filepath.Base(program), launch)
	if err != nil {
		return err
	}
	if slices.Contains(shells, filepath.Base(program)) {
		for i, argument := range launch.Args {
			launch.Args[i] = strings.ReplaceAll(argument, "/proc/self/status", file)
		}
	}
	if err := unix.Setgroups(launch.Groups); err != nil {
		return err
	}
	if err := unix.Setresgid(launch.Group, launch.Group, launch.Group); err != nil {
		return err
	}
	if err := unix.Setresuid(launch.User, launch.User, launch.User); err != nil {
		return err
	}
	if err := syscall.Exec(program, launch.Args, launch.Env); err != nil {
		return fmt.Errorf("exec %s: %w", program, err)
	}
	return nil
}

func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err
	}
	for i := len(env) - 1; i >= 0; i-- {
		path, found := strings.CutPrefix(env[i], "PATH=")
		if !found {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			candidate := filepath.Join(dir, name)
			if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return candidate, nil
			}
		}
		break
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH: %w", name, os.ErrNotExist)
}

var statusLine = regexp.MustCompile(`(?m)^(Name|Cpus_allowed|Cpus_allowed_list|Mems_allowed|Mems_allowed_list):.*$`)

// simulatedStatus is /proc/PID/status with the CPUs and memory nodes of the simulated machine.
func simulatedStatus(real, name, cpus, mems string) (string, error) {
	cpuSet, err := cpuset.Parse(cpus)
	if err != nil {
		return "", fmt.Errorf("cpuset %q: %w", cpus, err)
	}
	memSet, err := cpuset.Parse(mems)
	if err != nil {
		return "", fmt.Errorf("memory nodes %q: %w", mems, err)
	}
	values := map[string]string{
		"Name": name, "Cpus_allowed": machine.Mask(cpuSet.List()), "Cpus_allowed_list": cpuSet.String(),
		"Mems_allowed": machine.Mask(memSet.List()), "Mems_allowed_list": memSet.String(),
	}
	return statusLine.ReplaceAllStringFunc(real, func(line string) string {
		key, _, _ := strings.Cut(line, ":")
		return key + ":\t" + values[key]
	}), nil
}

// shells run other programs, whose status files nothing covers: their script is pointed at the file itself.
var shells = []string{"sh", "bash", "dash", "ash", "busybox"}

// showStatus covers this process's own status file, and returns what it covers it with. An exec gets a mount namespace of its own first, so that its cover ends
// with it.
func showStatus(name string, launch *cri.Launch) (string, error) {
	real, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	text, err := simulatedStatus(string(real), name, launch.CPUs, launch.Mems)
	if err != nil {
		return "", err
	}
	if launch.Root == "" {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return "", err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return "", err
		}
	}
	file := fmt.Sprintf("/run/sim/status/%d", os.Getpid())
	if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
		return "", err
	}
	return file, unix.Mount(file, fmt.Sprintf("/proc/%d/status", os.Getpid()), "", unix.MS_BIND, "")
}

// layOutContainer builds the container's root and enters it.
func layOutContainer(launch *cri.Launch) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := launch.Root
	if err := layOutRoot(root, "/"); err != nil {
		return err
	}
	if err := mkdirAll(filepath.Join(root, "var/tmp"), filepath.Join(root, "run/sim")); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", filepath.Join(root, "run/sim"), "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	if err := mkdirAll(filepath.Join(root, "run/sim/status")); err != nil {
		return err
	}
	for _, step := range []func(*cri.Launch) error{containerEtc, containerProc, containerSys, containerDev, containerMounts} {
		if err := step(launch); err != nil {
			return err
		}
	}
	if launch.ReadOnlyRoot {
		if err := makeReadOnly(root, false); err != nil {
			return err
		}
	}
	if launch.Hostname != "" {
		if err := unix.Sethostname([]byte(launch.Hostname)); err != nil {
			return err
		}
	}
	return enterRoot(root)
}

func containerEtc(launch *cri.Launch) error {
	for _, name := range etcEntries {
		path := filepath.Join("/etc", name)
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if err := copyTree(path, filepath.Join(launch.Root, path)); err != nil {
				return err
			}
		} else if err := bindAt(launch.Root, path, path, true); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{"resolv.conf": launch.DNS, "hosts": "127.0.0.1 localhost\n", "hostname": launch.Hostname + "\n"} {
		if err := os.WriteFile(filepath.Join(launch.Root, "etc", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func containerProc(launch *cri.Launch) error {
	proc := filepath.Join(launch.Root, "proc")
	if launch.HostPID {
		return bind("/proc", proc, false)
	}
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		return err
	}
	for _, path := range hardwareCovers {
		name, found := strings.CutPrefix(path, "proc/")
		if !found || !exists(filepath.Join(proc, name)) {
			continue
		}
		if err := bind(filepath.Join("/proc", name), filepath.Join(proc, name), true); err != nil {
			return err
		}
	}
	return nil
}

func containerSys(launch *cri.Launch) error {
	sys := filepath.Join(launch.Root, "sys")
	if err := bind("/sys", sys, !launch.Privileged); err != nil {
		return err
	}
	return bind(filepath.Join(launch.StateDir, "cgroup"), filepath.Join(sys, "fs/cgroup"), true)
}

func containerDev(launch *cri.Launch) error {
	dev := filepath.Join(launch.Root, "dev")
	if launch.Privileged {
		return bind("/dev", dev, false)
	}
	if err := unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := filepath.Join(dev, name)
		if err := touch(target); err != nil {
			return err
		}
		if err := bind(filepath.Join("/dev", name), target, false); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"shm", "pts"} {
		if err := mkdirAll(filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := unix.Mount("shm", filepath.Join(dev, "shm"), "tmpfs", 0, "mode=1777,size=64m"); err != nil {
		return err
	}
	for _, device := range launch.Devices {
		if err := touch(filepath.Join(launch.Root, device)); err != nil {
			return err
		}
	}
	return nil
}

// containerMounts binds the volumes; a host path that does not exist is made, as container runtimes do.
func containerMounts(launch *cri.Launch) error {
	for _, mount := range launch.Mounts {
		if !exists(mount.Source) {
			if err := mkdirAll(mount.Source); err != nil {
				return err
			}
		}
		if err := bindAt(launch.Root, mount.Source, mount.Target, mount.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}
