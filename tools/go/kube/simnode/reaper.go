package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reaper starts the children that init waits for itself, and collects all other ended processes that fell to init.
type reaper struct {
	mu  sync.Mutex
	own map[int]bool
}

func newReaper() *reaper { return &reaper{own: map[int]bool{}} }

// start starts a command and returns its wait function, to be called once.
func (r *reaper) start(cmd *exec.Cmd) (func() error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	r.own[pid] = true
	return func() error {
		err := cmd.Wait()
		r.mu.Lock()
		delete(r.own, pid)
		r.mu.Unlock()
		return err
	}, nil
}

func (r *reaper) run() {
	for range time.Tick(time.Second) {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if pid, err := strconv.Atoi(entry.Name()); err == nil {
				r.collect(pid)
			}
		}
	}
}

func (r *reaper) collect(pid int) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	if fields := strings.Fields(after); len(fields) < 2 || fields[0] != "Z" || fields[1] != "1" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.own[pid] {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}
