//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a running program, and what it has printed so far.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	pid  int

	ended chan struct{} // closed when it has ended and everything that it printed was read

	mu       sync.Mutex
	out, err []string
	code     int
}

// startOptions are what a program is started with.
type startOptions struct {
	env []string // complete
	dir string
	// stdout replaces the collected standard output: a file takes what would be too much, a pipe what is not read.
	stdout *os.File
}

// startProcess starts one of the programs in a session of its own, so that no signal to the test reaches it.
func startProcess(t testing.TB, program string, o startOptions, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, name: strings.Join(append([]string{program}, args...), " "),
		cmd: exec.Command(filepath.Join(programs, program), args...), ended: make(chan struct{}),
	}
	p.cmd.Env, p.cmd.Dir = o.env, o.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var readers sync.WaitGroup
	if o.stdout != nil {
		p.cmd.Stdout = o.stdout
	} else {
		p.collect(&readers, p.cmd.StdoutPipe, &p.out)
	}
	p.collect(&readers, p.cmd.StderrPipe, &p.err)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	p.pid = p.cmd.Process.Pid
	go func() { // ends with the process; kill and wait wait for it
		readers.Wait()
		_ = p.cmd.Wait() // how it ended is read from its state
		p.mu.Lock()
		p.code = p.cmd.ProcessState.ExitCode()
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			p.code = 128 + int(status.Signal())
		}
		p.mu.Unlock()
		close(p.ended)
	}()
	return p
}

// collect reads a stream of the process line by line, when it has started.
func (p *process) collect(readers *sync.WaitGroup, pipe func() (io.ReadCloser, error), into *[]string) {
	r, err := pipe()
	if err != nil {
		p.t.Fatalf("pipe of %s: %v", p.name, err)
	}
	readers.Go(func() {
		lines := bufio.NewReaderSize(r, 1<<16)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				p.mu.Lock()
				*into = append(*into, strings.TrimSuffix(line, "\n"))
				p.mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	})
}

// stdout and stderr are the lines printed so far.
func (p *process) stdout() []string { return p.lines(&p.out) }
func (p *process) stderr() []string { return p.lines(&p.err) }

func (p *process) lines(of *[]string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return (*of)[:len(*of):len(*of)]
}

// text is everything printed so far, both streams, cut to its end.
func (p *process) text() string {
	text := strings.Join(append(p.stdout(), p.stderr()...), "\n")
	if over := len(text) - 3000; over > 0 {
		text = "… " + text[over:]
	}
	return text
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// line waits for a line of either stream that holds part, and returns it.
func (p *process) line(within time.Duration, part string) string {
	p.t.Helper()
	var found string
	eventually(p.t, within, fmt.Sprintf("a line with %q from %s", part, p.name), func() error {
		alive := p.alive()
		for _, l := range append(p.stdout(), p.stderr()...) {
			if strings.Contains(l, part) {
				found = l
				return nil
			}
		}
		if !alive {
			p.t.Fatalf("%s ended with %d and never said %q: %s", p.name, p.code, part, p.text())
		}
		return fmt.Errorf("it says: %s", p.text())
	})
	return found
}

// wait waits for the end, and returns the exit code; 128 + n for a signal.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(patient(within))
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.code
	case <-timer.C:
		p.t.Fatalf("%s still runs after %s: %s", p.name, patient(within), p.text())
		return -1
	}
}

// exits waits for the end with that exit code.
func (p *process) exits(within time.Duration, want int) {
	p.t.Helper()
	if code := p.wait(within); code != want {
		p.t.Fatalf("%s exits %d, not %d: %s", p.name, code, want, p.text())
	}
}

// signal sends a signal to the process alone.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("signal %s to %s: %v", s, p.name, err)
	}
}

// kill ends it as kill -9 does, and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}
