package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a swampd under measurement, on a data directory of its own.
type server struct {
	program string
	dir     string
	addr    string
	url     string
	admin   string
	cmd     *exec.Cmd
	workers int // worker processes started so far
}

// newServer makes a directory and finds a port. The directory goes with remove.
func newServer(program string) (*server, error) {
	dir, err := os.MkdirTemp("", "swamp-bench-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{program: program, dir: dir, addr: l.Addr().String()}
	s.url = "http://" + s.addr
	return s, l.Close()
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// start starts swampd and waits until it is ready; it returns how long that took.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	s.cmd = exec.CommandContext(ctx, s.program, "--listen", s.addr, "--data-dir", s.data(), "--loopback", "off", "--queue-timeout", "0", "--log-level", "warn")
	s.cmd.Stderr = os.Stderr
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return 0, fmt.Errorf("start swampd: %w", err)
	}
	if err := eventually(ctx, 2*time.Minute, func() bool { return s.ready(ctx) }); err != nil {
		return 0, fmt.Errorf("swampd is not ready: %w", err)
	}
	took := time.Since(begin)
	token, err := os.ReadFile(filepath.Join(s.data(), "admin-token"))
	s.admin = strings.TrimSpace(string(token))
	return took, err
}

func (s *server) ready(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Timeout: time.Second}
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// kill ends swampd as a crash would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// remove stops swampd and removes its directory.
func (s *server) remove() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// cpu is the processor time that swampd has used.
func (s *server) cpu() time.Duration { return cpuOf(s.cmd.Process.Pid) }

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const ticks = 100 // of a second, on every Linux that we know
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticks
}

// memory is what swampd holds of the machine's: what is its own, and not pages of files that the kernel may drop.
func (s *server) memory() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) * 1024
		}
	}
	return 0
}

// metric reads numbers from swampd's metrics, summed over their labels.
func (s *server) metric(ctx context.Context, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+s.admin)
	client := &http.Client{Timeout: 30 * time.Second}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	sum := 0.0
	in := bufio.NewScanner(answer.Body)
	for in.Scan() {
		rest, ok := strings.CutPrefix(in.Text(), name)
		if !ok || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, in.Err()
}

// eventually looks every few milliseconds until something holds.
func eventually(ctx context.Context, within time.Duration, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
