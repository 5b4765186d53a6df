package main

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup hierarchy of this machine: version 2, or a version 1 controller set.
type hierarchy struct {
	mountPoint string
	kind       string // cgroup or cgroup2
	options    string // what mount(2) wants to mount the same hierarchy again
}

func cgroupHierarchies(mountInfo string) ([]hierarchy, error) {
	file, err := os.Open(mountInfo)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []hierarchy
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if h, ok := parseHierarchy(lines.Text()); ok && !slices.ContainsFunc(found, func(o hierarchy) bool { return o == h }) {
			found = append(found, h)
		}
	}
	return found, lines.Err()
}

// parseHierarchy reads a line of /proc/PID/mountinfo (proc(5)): fields before " - ", then type, source, super options.
func parseHierarchy(line string) (hierarchy, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, tail := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(tail) < 3 || !strings.HasPrefix(fields[4], "/sys/fs/cgroup") {
		return hierarchy{}, false
	}
	h := hierarchy{mountPoint: fields[4], kind: tail[0]}
	switch h.kind {
	case "cgroup2":
		return h, true
	case "cgroup":
		var options []string
		for _, option := range strings.Split(tail[2], ",") {
			switch {
			case strings.HasPrefix(option, "name="):
				options = append(options, "none", option)
			case option != "rw" && option != "ro" && option != "xattr" && option != "clone_children" && !strings.HasPrefix(option, "release_agent"):
				options = append(options, option)
			}
		}
		h.options = strings.Join(options, ",")
		return h, true
	}
	return hierarchy{}, false
}

func (h hierarchy) enterGroup(group string) error {
	dir := filepath.Join(h.mountPoint, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if h.kind == "cgroup2" {
		delegateControllers(h.mountPoint)
	} else if slices.Contains(strings.Split(h.options, ","), "cpuset") {
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.mountPoint, name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
				return err
			}
		}
	}
	return joinGroup(dir)
}

// leaveGroup moves this process back to the hierarchy's root: version 2 gives no controllers to groups below one with processes.
func (h hierarchy) leaveGroup() error { return joinGroup(h.mountPoint) }

// delegateControllers hands every controller on that can be handed on; what cannot shows when the kubelet starts.
func delegateControllers(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

func joinGroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// removeGroup removes a group and all below it; groups of processes that are just ending need a moment.
func (h hierarchy) removeGroup(group string) {
	root := filepath.Join(h.mountPoint, group)
	for range 20 {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			_ = unix.Rmdir(dir)
		}
		if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
