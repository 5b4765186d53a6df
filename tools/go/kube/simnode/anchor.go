package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const anchorListenerFD = 3

// runAnchor holds the cluster's network namespace and carries the API server's port out of it. The listener is opened
// outside; sockets stay in the namespace that they were made in, so the process then unshares, executes itself (same
// process id) and serves the inherited listener from inside; the same address is served inside too, so one kubeconfig holds on both sides. All addresses of the cluster are
// on the namespace's loopback interface.
func runAnchor(args []string) error {
	flags := flag.NewFlagSet("anchor", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address outside the namespace; port 0 takes a free one")
	inside := flags.Bool("inside", false, "set by the program itself")
	addresses := flags.String("addresses", "", "comma-separated prefixes that are local inside the namespace")
	target := flags.String("target", "", "the API server's address inside the namespace")
	service := flags.String("service", "", "address inside the namespace that also leads to the target")
	ready := flags.String("ready-file", "", "the outside address is written here when all is up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !*inside {
		return enterNewNamespace(*listen)
	}
	if err := addLocalAddresses(strings.Split(*addresses, ",")); err != nil {
		return err
	}
	outside, err := net.FileListener(os.NewFile(anchorListenerFD, "listener"))
	if err != nil {
		return err
	}
	within, err := net.Listen("tcp", *service)
	if err != nil {
		return err
	}
	same, err := net.Listen("tcp", outside.Addr().String())
	if err != nil {
		return err
	}
	temporary := *ready + ".new"
	if err := os.WriteFile(temporary, []byte(outside.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, *ready); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go forward(outside, *target)
	go forward(within, *target)
	go forward(same, *target)
	<-ctx.Done()
	return nil
}

func enterNewNamespace(listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Dup2(int(file.Fd()), anchorListenerFD); err != nil {
		return err
	}
	if int(file.Fd()) == anchorListenerFD {
		if _, err := unix.FcntlInt(anchorListenerFD, unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network namespace of the cluster's own: %w (root is needed)", err)
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(executable, append(append([]string{}, os.Args...), "-inside"), os.Environ())
}

// addLocalAddresses makes every address of each IPv4 prefix answer locally, as aliases of the loopback interface.
func addLocalAddresses(prefixes []string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	for _, prefix := range prefixes {
		parsed, err := netip.ParsePrefix(prefix)
		if err != nil || !parsed.Addr().Is4() {
			return fmt.Errorf("%q is not an IPv4 prefix such as 10.244.0.0/16", prefix)
		}
		address := parsed.Addr().As4()
		alias := fmt.Sprintf("lo:%x", address)
		if err := setInterfaceAddress(socket, alias, unix.SIOCSIFADDR, address[:]); err != nil {
			return fmt.Errorf("address %s: %w", prefix, err)
		}
		if err := setInterfaceAddress(socket, alias, unix.SIOCSIFNETMASK, net.CIDRMask(parsed.Bits(), 32)); err != nil {
			return fmt.Errorf("netmask of %s: %w", prefix, err)
		}
	}
	return nil
}

func setInterfaceAddress(socket int, alias string, request uint, value []byte) error {
	change, err := unix.NewIfreq(alias)
	if err != nil {
		return err
	}
	if err := change.SetInet4Addr(value); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, request, change)
}

func forward(listener net.Listener, target string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			onward, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			defer onward.Close()
			pipe(connection, onward)
		}()
	}
}

// pipe copies both ways until both directions have ended.
func pipe(a, b net.Conn) {
	done := make(chan struct{}, 2)
	copyHalf := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		done <- struct{}{}
	}
	go copyHalf(a, b)
	go copyHalf(b, a)
	<-done
	<-done
}
