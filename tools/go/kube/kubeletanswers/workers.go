package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"sync"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// task is a case for a worker with its feature gates: those are global in Kubernetes, so each set has processes of its own.
type task struct {
	index   int
	gates   string
	line    []byte
	timeout time.Duration
}

// crew is what workers are started with.
type crew struct {
	repeat   int
	recycle  int    // cases after which a worker is replaced: the managers leave goroutines behind
	stateDir string // of all workers, removed at the end: a killed worker leaves its own behind
}

func runAdmit(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("admit", flag.ExitOnError)
	workers := flags.Int("workers", runtime.NumCPU(), "worker processes")
	timeout := flags.Duration("timeout", 30*time.Second, "limit of one case; past it there is no answer")
	repeat := flags.Int("repeat", 1, "how often each case runs; other outcomes become variants")
	recycle := flags.Int("recycle", 1000, "cases after which a worker process is replaced")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tasks, err := readTasks(in, *timeout)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(memoryFolder(), "kubeletanswers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	results, err := crew{repeat: *repeat, recycle: *recycle, stateDir: dir}.answer(tasks, *workers)
	if err != nil {
		return err
	}
	return write(out, results)
}

func readTasks(in io.Reader, timeout time.Duration) ([]task, error) {
	var cases []json.RawMessage
	if err := json.NewDecoder(in).Decode(&cases); err != nil {
		return nil, fmt.Errorf("the input is no JSON array of cases: %w", err)
	}
	tasks := make([]task, len(cases))
	for i, raw := range cases {
		var c struct {
			Kubelet struct {
				FeatureGates map[string]bool `json:"featureGates"`
			} `json:"kubelet"`
			TimeoutSeconds float64 `json:"timeoutSeconds"`
		}
		_ = json.Unmarshal(raw, &c) // a case that cannot be read is answered by the worker
		gates, err := json.Marshal(c.Kubelet.FeatureGates)
		if err != nil {
			return nil, err
		}
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			return nil, err
		}
		tasks[i] = task{index: i, gates: string(gates), line: append(line.Bytes(), '\n'), timeout: timeout}
		if c.TimeoutSeconds > 0 {
			tasks[i].timeout = time.Duration(c.TimeoutSeconds * float64(time.Second))
		}
	}
	sort.SliceStable(tasks, func(i, j int) bool { return tasks[i].gates < tasks[j].gates })
	return tasks, nil
}

func (c crew) answer(tasks []task, workers int) ([]json.RawMessage, error) {
	results := make([]json.RawMessage, len(tasks))
	queue := make(chan task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)
	failures := make([]error, workers)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() { failures[i] = c.serve(queue, results) })
	}
	group.Wait()
	return results, errors.Join(failures...)
}

func (c crew) serve(queue <-chan task, results []json.RawMessage) error {
	var current *worker
	defer func() { current.stop() }()
	for t := range queue {
		if current == nil || current.gates != t.gates || current.done >= c.recycle {
			current.stop()
			var err error
			if current, err = c.start(t.gates); err != nil {
				return err
			}
		}
		answer, err := current.ask(t.line, t.timeout)
		if err != nil { // the kubelet's code did not end, or ended the process
			current.stop()
			current = nil
			if answer, err = json.Marshal(unanswered(t.line, err)); err != nil {
				return err
			}
		}
		results[t.index] = answer
	}
	return nil
}

type worker struct {
	command *exec.Cmd
	gates   string
	in      io.WriteCloser
	lines   chan []byte
	done    int
}

func (c crew) start(gates string) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{gates: gates, lines: make(chan []byte, 1)}
	w.command = exec.Command(program, "worker", "-gates", gates, "-state", c.stateDir, fmt.Sprintf("-repeat=%d", c.repeat))
	w.command.Stderr = os.Stderr
	if w.in, err = w.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.lines)
		reader := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			w.lines <- line[:len(line)-1]
		}
	}()
	return w, nil
}

func (w *worker) ask(line []byte, timeout time.Duration) (json.RawMessage, error) {
	w.done++
	if _, err := w.in.Write(line); err != nil {
		return nil, fmt.Errorf("the kubelet's code ended the process: %w", err)
	}
	select {
	case answer, ok := <-w.lines:
		if !ok {
			return nil, errors.New("the kubelet's code ended the process")
		}
		return answer, nil
	case <-time.After(timeout):
		return nil, fmt.Errorf("the kubelet's code did not answer in %s", timeout)
	}
}

func (w *worker) stop() {
	if w == nil {
		return
	}
	_ = w.in.Close()
	_ = w.command.Process.Kill()
	_ = w.command.Wait()
}

// runWorker answers one case a line.
func runWorker(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	gates := flags.String("gates", "{}", "feature gates as JSON")
	stateDir := flags.String("state", "", "folder for state files")
	repeat := flags.Int("repeat", 1, "how often each case runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var wanted map[string]bool
	if err := json.Unmarshal([]byte(*gates), &wanted); err != nil {
		return err
	}
	gatesErr := utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
	reader, writer := bufio.NewReaderSize(in, 1<<20), bufio.NewWriter(out)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return nil
		}
		if err := write(writer, answerOften(line, *repeat, *stateDir, gatesErr)); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

// answerOften runs a case several times; what differs from the first outcome is a variant.
func answerOften(line []byte, repeat int, stateDir string, gatesErr error) result {
	var first result
	seen := map[string]bool{}
	for i := range repeat {
		var c kase
		if err := json.Unmarshal(line, &c); err != nil {
			return unanswered(line, fmt.Errorf("bad case: %w", err))
		}
		answer := answerCase(&c, stateDir, gatesErr)
		key, err := json.Marshal(answer)
		if err != nil {
			return unanswered(line, err)
		}
		if i == 0 {
			first = answer
		} else if !seen[string(key)] {
			first.Variants = append(first.Variants, answer.Pods)
		}
		seen[string(key)] = true
	}
	return first
}

func unanswered(line []byte, why error) result {
	var c struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(line, &c)
	return result{ID: c.ID, ConfigErrors: []string{}, Pods: []podResult{}, Error: why.Error()}
}

// memoryFolder is where state files cost no disk; empty where there is no such folder.
func memoryFolder() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}
