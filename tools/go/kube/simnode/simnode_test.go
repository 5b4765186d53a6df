package main

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"numawise.dev/tools/kube/simnode/cri"
)

func TestCgroupHierarchiesOfBothVersions(t *testing.T) {
	for line, want := range map[string]hierarchy{
		"30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct":                   {"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"},
		"31 23 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/systemd/agent,name=systemd": {"/sys/fs/cgroup/systemd", "cgroup", "none,name=systemd"},
		"32 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate":                                         {"/sys/fs/cgroup", "cgroup2", ""},
	} {
		if got, ok := parseHierarchy(line); !ok || got != want {
			t.Errorf("%s: %+v %v", line, got, ok)
		}
	}
	for _, line := range []string{"33 23 0:29 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755", "34 1 0:30 / /mnt/x rw - cgroup2 cgroup2 rw", "broken"} {
		if _, ok := parseHierarchy(line); ok {
			t.Errorf("%s: taken for a hierarchy", line)
		}
	}
}

func TestSystemdRunArguments(t *testing.T) {
	request, err := parseSystemdRun([]string{"--unit", "rollback", "--on-active=2min", "--collect", "-p", "Type=oneshot", "/bin/sh", "-c", "true"})
	if err != nil || request.Unit != "rollback" || request.Delay != 2*time.Minute || !slices.Equal(request.Command, []string{"/bin/sh", "-c", "true"}) {
		t.Errorf("%+v %v", request, err)
	}
	if request, err = parseSystemdRun([]string{"--on-active", "30", "--", "true"}); err != nil || request.Delay != 30*time.Second || !slices.Equal(request.Command, []string{"true"}) {
		t.Errorf("%+v %v", request, err)
	}
	for _, bad := range [][]string{{"--unit"}, {"--on-active=soon", "true"}, {"--unit=x"}} {
		if _, err := parseSystemdRun(bad); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

func TestStatusShowsTheSimulatedCPUs(t *testing.T) {
	real := "Name:\tsimnode\nPid:\t7\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nMems_allowed:\t1\nMems_allowed_list:\t0\n"
	text, err := simulatedStatus(real, "cat", "2-3,34", "1")
	want := "Name:\tcat\nPid:\t7\nCpus_allowed:\t00000004,0000000c\nCpus_allowed_list:\t2-3,34\nMems_allowed:\t00000002\nMems_allowed_list:\t1\n"
	if err != nil || text != want {
		t.Errorf("%q %v", text, err)
	}
	if _, err := simulatedStatus(real, "cat", "x", "1"); err == nil {
		t.Error("a cpuset that is none was taken")
	}
}

func TestStandInAnswersOnlyOnceReady(t *testing.T) {
	status := func(s cri.StandIn, started time.Time) int {
		recorder := httptest.NewRecorder()
		standInHandler(s, started).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/health", nil))
		return recorder.Code
	}
	now := time.Now()
	if status(cri.StandIn{}, now) != 200 || status(cri.StandIn{NotReady: true}, now) != 503 {
		t.Error("ready and not ready")
	}
	late := cri.StandIn{ReadyIn: time.Minute}
	if status(late, now) != 503 || status(late, now.Add(-2*time.Minute)) != 200 {
		t.Error("ready after a minute")
	}
}

func TestMountPointsAreMadeInsideTheRootOnly(t *testing.T) {
	root := t.TempDir()
	for link, to := range map[string]string{"abs": "/inner", "rel": "inner", "up": "../../../../inner"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/a/b": "a/b", "/abs/x": "inner/x", "/rel/y": "inner/y", "/up/z": "inner/z"} {
		got, err := mountPoint(root, path, true)
		if err != nil || got != filepath.Join(root, want) {
			t.Errorf("%s: %s %v", path, got, err)
		}
		if info, err := os.Stat(filepath.Join(root, want)); err != nil || !info.IsDir() {
			t.Errorf("%s was not made: %v", want, err)
		}
	}
	file, err := mountPoint(root, "/etc/hosts", false)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		t.Errorf("a file's mount point: %v", err)
	}
	if err := os.Symlink("loop", filepath.Join(root, "loop")); err != nil {
		t.Fatal(err)
	}
	if _, err := mountPoint(root, "/loop/x", true); err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("loop: %v", err)
	}
}

func TestCertificatesAreMadeOnceAndSignedByTheSameAuthority(t *testing.T) {
	dir := t.TempDir()
	requests := filepath.Join(dir, "requests.json")
	pki := func(content string) {
		if err := os.WriteFile(requests, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := runPKI([]string{"-dir", dir, "-requests", requests}); err != nil {
			t.Fatal(err)
		}
	}
	pki(`[{"name":"a","user":"system:node:a","groups":["system:nodes"],"ips":["127.0.0.1"]}]`)
	before, err := os.ReadFile(filepath.Join(dir, "a.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pki(`[{"name":"a","user":"system:node:a"},{"name":"b","user":"b"}]`)
	after, err := os.ReadFile(filepath.Join(dir, "a.crt"))
	if err != nil || string(after) != string(before) {
		t.Errorf("an existing certificate was replaced: %v", err)
	}
	ca, key, err := authority(dir)
	if err != nil || key == nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		block, err := readPEM(filepath.Join(dir, name+".crt"))
		if err != nil {
			t.Fatal(err)
		}
		checkSignedBy(t, ca, block)
	}
	info, err := os.Stat(filepath.Join(dir, "a.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v", err)
	}
}

func checkSignedBy(t *testing.T, ca *x509.Certificate, certificate []byte) {
	t.Helper()
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.CheckSignatureFrom(ca); err != nil {
		t.Error(err)
	}
}
