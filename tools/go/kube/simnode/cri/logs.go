package cri

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// containerLog writes the CRI's log format: time, stream, F for a full line, text.
type containerLog struct {
	mu   sync.Mutex
	path string
	file *os.File
}

// open opens the file anew, as after a rotation.
func (l *containerLog) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	var err error
	l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	return err
}

func (l *containerLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

func (l *containerLog) write(stream, tag string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, line)
	}
}

const longestLogLine = 16 << 10

// stream is one of a container's output streams, cut into lines; what is longer than 16 KiB is written in parts (tag P).
func (l *containerLog) stream(name string) *logStream { return &logStream{log: l, name: name} }

type logStream struct {
	log     *containerLog
	name    string
	pending []byte
}

func (s *logStream) Write(content []byte) (int, error) {
	s.pending = append(s.pending, content...)
	for {
		if end := bytes.IndexByte(s.pending, '\n'); end >= 0 && end <= longestLogLine {
			s.log.write(s.name, "F", s.pending[:end])
			s.pending = s.pending[end+1:]
		} else if len(s.pending) > longestLogLine {
			s.log.write(s.name, "P", s.pending[:longestLogLine])
			s.pending = s.pending[longestLogLine:]
		} else {
			return len(content), nil
		}
	}
}

// flush writes what came without a line end.
func (s *logStream) flush() {
	if len(s.pending) > 0 {
		s.log.write(s.name, "F", s.pending)
		s.pending = nil
	}
}
