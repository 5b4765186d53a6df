package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"numawise.dev/tools/kube/simnode/cri"
	"numawise.dev/tools/kube/simnode/machine"
)

// runInit is the first process of a node: it lays out the node's file system and hardware, serves the container runtime
// and the device plugins, and keeps the kubelet running as a service manager would.
func runInit(args []string) error {
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	dir := flags.String("dir", "", "the node's folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	spec, err := readSpec(*dir)
	if err != nil {
		return err
	}
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	kubeletLog, err := os.OpenFile(filepath.Join(*dir, "kubelet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := layOutNode(*dir, spec); err != nil {
		return fmt.Errorf("node %s: %w", spec.Name, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	children := newReaper()
	go children.run()

	pods, err := cri.NewAPIPodReader(spec.APIServer, "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/node.crt", "/etc/kubernetes/pki/node.key")
	if err != nil {
		return err
	}
	containers, err := cri.NewRuntime(cri.Options{
		NodeIP: spec.IP, PodPrefix: spec.PodPrefix, Images: spec.Images, CPUs: machine.List(spec.Machine.CPUs()),
		Mems: machine.List(spec.Machine.NUMANodeIDs()), StateDir: "/run/sim/containers", Launcher: partsDir + "/simnode",
		Start: children.start, Pods: pods,
	})
	if err != nil {
		return err
	}
	if err := containers.Serve(ctx, runtimeSocket); err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	for resource, devices := range spec.Devices {
		go newDevicePlugin(resource, devices, spec.RegisterAfterMS).run(ctx)
	}
	services := newServiceManager(children, kubeletLog, spec)
	if err := services.serve(controlSocket); err != nil {
		return err
	}
	if err := services.start("kubelet"); err != nil {
		log.Printf("kubelet: %v", err)
	}
	<-ctx.Done()
	services.stopAll()
	return nil
}

// layOutNode builds the node's root and enters it: the machine's software read-only; /etc and /var of the node's folder, which
// outlive a reboot; /run, /tmp and all else new at each boot; /proc and /sys of the simulated hardware.
func layOutNode(dir string, spec *nodeSpec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := layOutRoot(root, "/"); err != nil {
		return err
	}
	for _, name := range []string{"etc", "var"} {
		own := filepath.Join(dir, name)
		if err := mkdirAll(own); err != nil {
			return err
		}
		if err := bind(own, filepath.Join(root, name), false); err != nil {
			return err
		}
	}
	for _, name := range []string{"run", "tmp", "mnt"} {
		if err := unix.Mount("tmpfs", filepath.Join(root, name), "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := copyEtc("/etc", filepath.Join(root, "etc")); err != nil {
		return err
	}
	identity := map[string]string{
		"etc/hostname":   spec.Name + "\n",
		"etc/hosts":      fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", spec.IP, spec.Name),
		"etc/machine-id": strings.ReplaceAll(spec.SystemUUID, "-", "") + "\n",
	}
	for path, content := range identity {
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := touch(filepath.Join(root, "etc/resolv.conf")); err != nil {
		return err
	}
	if err := mkdirAll(filepath.Join(root, dropInDir), filepath.Join(root, "var/lib/kubelet"), filepath.Join(root, "var/log/pods"),
		filepath.Join(root, "run/sim/containers"), filepath.Join(root, "var/tmp")); err != nil {
		return err
	}
	if err := bind("/dev", filepath.Join(root, "dev"), false); err != nil {
		return err
	}
	if err := layOutParts(root, spec); err != nil {
		return err
	}
	for _, folder := range spec.Shared {
		if err := bindAt(root, folder.Source, folder.Target, false); err != nil {
			return err
		}
	}
	if err := layOutHardware(root, spec); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return err
	}
	return enterRoot(root)
}

// layOutParts brings in this program, its stand-ins for host programs, the kubelet and a Python that any user may run.
func layOutParts(root string, spec *nodeSpec) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{partsDir + "/simnode": executable, partsDir + "/kubelet": spec.Kubelet}
	if spec.Python != "" {
		files[partsDir+"/python"] = spec.Python
	}
	for target, source := range files {
		if err := bindAt(root, source, target, true); err != nil {
			return err
		}
	}
	bin := filepath.Join(root, partsDir, "bin")
	if err := mkdirAll(bin); err != nil {
		return err
	}
	for _, name := range []string{"systemctl", "systemd-run", "vllm"} {
		if err := os.Symlink(partsDir+"/simnode", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, path := range []string{"/usr/bin/systemctl", "/usr/bin/systemd-run"} {
		if exists(filepath.Join(root, path)) {
			if err := bindAt(root, executable, path, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// hardwareCovers are the places of the kernel's hardware files that show the simulated machine instead.
var hardwareCovers = []string{
	"sys/devices/system/cpu", "sys/devices/system/node", "sys/kernel/mm/hugepages", "sys/class", "sys/bus/pci",
	"proc/meminfo", "proc/cpuinfo", "proc/sys/kernel/random/boot_id", "proc/driver",
}

// layOutHardware mounts /proc and /sys and covers what the kernel says there about hardware and control groups.
func layOutHardware(root string, spec *nodeSpec) error {
	proc, sys := filepath.Join(root, "proc"), filepath.Join(root, "sys")
	hierarchies, err := cgroupHierarchies("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	hardware := filepath.Join(root, "run/sim/hardware")
	bootID, err := newUUID()
	if err != nil {
		return err
	}
	if err := machine.WriteFiles(hardware, spec.Machine.Files(spec.SystemUUID, bootID)); err != nil {
		return err
	}
	files, links := machine.AcceleratorFiles(spec.Machine.NUMANodeIDs(), spec.Devices)
	if err := machine.WriteFiles(hardware, files); err != nil {
		return err
	}
	if err := machine.WriteLinks(hardware, links); err != nil {
		return err
	}
	for _, path := range []string{"proc/driver", "sys/bus/pci/devices", "sys/class/net"} {
		if err := mkdirAll(filepath.Join(hardware, path)); err != nil {
			return err
		}
	}
	if err := bind(filepath.Join(sys, "class/net"), filepath.Join(hardware, "sys/class/net"), true); err != nil {
		return err
	}
	for _, path := range hardwareCovers {

		target := filepath.Join(root, path)
		if !exists(target) {
			log.Printf("this kernel has no /%s: the simulated one is left out", path)
			continue
		}
		if err := bind(filepath.Join(hardware, path), target, true); err != nil {
			return err
		}
	}
	return mountCgroups(root, hierarchies)
}

func mountCgroups(root string, hierarchies []hierarchy) error {
	for _, h := range hierarchies {
		if h.mountPoint != "/sys/fs/cgroup" {
			if err := unix.Mount("tmpfs", filepath.Join(root, "sys/fs/cgroup"), "tmpfs", 0, "mode=0755"); err != nil {
				return err
			}
			break
		}
	}
	for _, h := range hierarchies {
		target := filepath.Join(root, h.mountPoint)
		if err := mkdirAll(target); err != nil {
			return err
		}
		if err := unix.Mount(h.kind, target, h.kind, 0, h.options); err != nil {
			return fmt.Errorf("control groups %s at %s: %w", h.options, h.mountPoint, err)
		}
		if h.kind == "cgroup2" {
			leaf := filepath.Join(target, "init")
			if err := mkdirAll(leaf); err != nil {
				return err
			}
			if err := joinGroup(leaf); err != nil {
				return err
			}
			delegateControllers(target)
		}
	}
	return nil
}

func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
