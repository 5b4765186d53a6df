// Command simnode is what the embedded cluster has instead of machines: the network namespace that the cluster lives in,
// nodes (a namespace set, the hardware as files, device plugins, a container runtime) in which unmodified kubelets run,
// and the keys and certificates of the cluster.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

var subcommands = map[string]func(args []string) error{
	"anchor":   runAnchor,
	"pki":      runPKI,
	"node":     runNode,
	"init":     runInit,
	"launch":   runLaunch,
	"stand-in": runStandIn,
	"control":  runControl,
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	var err error
	switch {
	case name == "systemctl":
		err = runSystemctl(args)
	case name == "systemd-run":
		err = runSystemdRun(args)
	case name == "vllm":
		err = runVLLM(args)
	case len(args) == 0:
		err = errors.New("simnode: which part? Known: anchor, pki, node, control; see tools/cluster")
	default:
		run, known := subcommands[args[0]]
		if !known {
			err = fmt.Errorf("simnode: no part %q", args[0])
		} else {
			err = run(args[1:])
		}
	}
	var status exitStatus
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exitStatus ends the program with this status and without a message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
