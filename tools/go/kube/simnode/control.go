package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ask sends one request to the node's init and prints its answer.
func ask(request serviceRequest) error {
	connection, err := net.Dial("unix", controlSocket)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(request); err != nil {
		return err
	}
	var answer serviceAnswer
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return fmt.Errorf("no answer from the node's init: %w", err)
	}
	if answer.Output != "" {
		fmt.Fprintln(os.Stdout, answer.Output)
	}
	if answer.Status != 0 {
		return exitStatus(answer.Status)
	}
	return nil
}

// runControl is the cluster manager's way to a node's services: simnode control VERB UNIT.
func runControl(args []string) error {
	flags := flag.NewFlagSet("control", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("simnode control: give a verb and a unit, such as restart kubelet")
	}
	return ask(serviceRequest{Verb: flags.Arg(0), Unit: flags.Arg(1)})
}

// runSystemctl stands for systemctl on a node: start, stop, restart, is-active, is-failed, show, status, and verbs without
// an effect here (daemon-reload, enable, disable, reset-failed).
func runSystemctl(args []string) error {
	var words []string
	quiet := false
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-q" || arg == "--quiet":
			quiet = true
		case slices.Contains([]string{"-p", "--property", "-t", "--type"}, arg):
			i++
		case strings.HasPrefix(arg, "-"):
		default:
			words = append(words, arg)
		}
	}
	if len(words) == 0 {
		return errors.New("systemctl: give a verb, such as restart, and a unit")
	}
	if quiet {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		os.Stdout = null
	}
	if len(words) == 1 {
		return ask(serviceRequest{Verb: words[0]})
	}
	for _, unit := range words[1:] {
		if err := ask(serviceRequest{Verb: words[0], Unit: unit}); err != nil {
			return err
		}
	}
	return nil
}

// runSystemdRun stands for systemd-run: a transient unit that outlives its caller, after --on-active if given.
func runSystemdRun(args []string) error {
	request, err := parseSystemdRun(args)
	if err != nil {
		return err
	}
	return ask(request)
}

func parseSystemdRun(args []string) (serviceRequest, error) {
	request := serviceRequest{Verb: "run", Unit: fmt.Sprintf("run-%d", os.Getpid())}
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") || name == "--" {
			if name == "--" {
				i++
			}
			request.Command = args[i:]
			break
		}
		takesValue := slices.Contains([]string{"--unit", "-u", "--on-active", "--property", "-p", "--description", "--setenv", "-E", "--slice", "--timer-property", "--working-directory"}, name)
		if takesValue && !inline {
			if i++; i == len(args) {
				return request, fmt.Errorf("systemd-run: %s needs a value", name)
			}
			value = args[i]
		}
		switch name {
		case "--unit", "-u":
			request.Unit = value
		case "--on-active":
			delay, err := parseTimeSpan(value)
			if err != nil {
				return request, err
			}
			request.Delay = delay
		}
	}
	if len(request.Command) == 0 {
		return request, errors.New("systemd-run: give a command")
	}
	return request, nil
}

// parseTimeSpan reads a systemd.time(7) span of one unit: "90", "90s", "5min", "1h".
func parseTimeSpan(text string) (time.Duration, error) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	units := map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "ms": time.Millisecond, "m": time.Minute, "min": time.Minute, "h": time.Hour,
	}
	unit, known := units[strings.TrimPrefix(text, number)]
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !known || err != nil {
		return 0, fmt.Errorf("time span %q: give seconds, or a number with s, ms, min or h", text)
	}
	return time.Duration(value * float64(unit)), nil
}
