// Command kubeletanswers says what the kubelet's own code does, with no cluster and no machine: k8s.io/kubernetes as a Go
// module, its configuration, its topology, CPU, memory and device managers and its admission handlers, on machines that are
// only described. It records the fixtures of tests/kubelet (`make record`); nothing else of the project runs it.
//
//	kubeletanswers admit    a JSON array of cases; the results have the form of `python -m infra admit`
//	kubeletanswers merge    a JSON array of base file, drop-ins and flags; which configuration is in force
//	kubeletanswers fields   nothing; every field of KubeletConfiguration with its Go type, default and flag
//
// Each reads standard input and writes standard output.
//
// What is real: loading, defaulting and validating the configuration; reservations; the four managers with their state files;
// the node status; the API server's defaulting and validation of a pod; topology admission, node fit with preemption, pod
// features. What is simulated: cAdvisor's machine (it comes with the case), device plugins (objects in this process instead of
// gRPC servers; a test compares the two), and containers: all of a pod start right after its admission.
//
// It builds for every supported minor: ../minors/N.mod requires that of 1.N, and the build tags before134 to before137 choose among calls
// whose signature changes (the pairs of files since_N.go and before_N.go).
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	_ "k8s.io/component-base/logs/json/register" // as cmd/kubelet: logging.format json
	"k8s.io/klog/v2"
)

var subcommands = map[string]func(args []string, in io.Reader, out io.Writer) error{
	"admit":  runAdmit,
	"merge":  runMerge,
	"fields": runFields,
	"worker": runWorker,
}

func main() {
	if len(os.Args) < 2 || subcommands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "kubeletanswers: which question? Known: admit, merge, fields")
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard())
	if err := checkInternals(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeletanswers:", err)
		os.Exit(1)
	}
	if err := subcommands[os.Args[1]](os.Args[2:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubeletanswers:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, answer any) error {
	return json.NewEncoder(out).Encode(answer)
}
