package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/worker"
)

// Host is what a command sees of the machine that it runs on.
type Host struct {
	// Args are the arguments, without the program's name.
	Args []string
	// Stdin is what a command reads where it is given no file.
	Stdin io.Reader
	// Stdout takes data, Stderr everything else.
	Stdout, Stderr io.Writer
	// LookupEnv and Environ read the environment, as in package os.
	LookupEnv func(string) (string, bool)
	Environ   func() []string
	// Notify delivers signals from now on, until stop is called.
	Notify func(...os.Signal) (signals <-chan os.Signal, stop func())
	// Terminal returns the size of the terminal that Stdout is; ok is false where it is none.
	Terminal func() (width, height int, ok bool)
	// StderrTerminal tells whether Stderr is a terminal.
	StderrTerminal func() bool
	// Reexec replaces this process by a new start of the same program. It returns only if that is not possible.
	Reexec func(Restart) error
	// Now is the clock that people read.
	Now func() time.Time
	// Engine makes orchestrators in this process. The program of a worker has none.
	Engine daemon.Engine
}

// Program is one of the three programs of this code base.
type Program string

// The programs.
const (
	Swampd      Program = "swampd"
	SwampWorker Program = "swamp-worker"
	Swamp       Program = "swamp"
)

// Main runs a program on the real machine and returns its exit code. The keeper of a step is the same binary under a
// hidden name, which must not look at flags or variables. Called as swamp, as a step finds it, each of them is that. engine
// may be nil for the program of a worker.
func Main(p Program, engine daemon.Engine) int {
	if len(os.Args) > 1 && os.Args[1] == worker.KeeperArg {
		return worker.RunKeeper()
	}
	if calledAs(os.Args) == string(Swamp) {
		p = Swamp
	}
	return Run(context.Background(), p, systemHost(engine))
}

// calledAs is the name of the program as it was called.
func calledAs(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(args[0]), ".exe")
}

func systemHost(engine daemon.Engine) *Host {
	return &Host{
		Args:      os.Args[1:],
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		LookupEnv: os.LookupEnv,
		Environ:   os.Environ,
		Notify:    notifySignals,
		Terminal: func() (int, int, bool) {
			fd := int(os.Stdout.Fd())
			if !term.IsTerminal(fd) {
				return 0, 0, false
			}
			width, height, err := term.GetSize(fd)
			return width, height, err == nil && width > 0 && height > 0
		},
		StderrTerminal: func() bool { return term.IsTerminal(int(os.Stderr.Fd())) },
		Reexec:         reexec,
		Now:            time.Now,
		Engine:         engine,
	}
}

// env returns a variable that is set to something.
func (h *Host) env(name string) (string, bool) {
	v, ok := h.LookupEnv(name)
	return v, ok && v != ""
}

// color tells whether escape sequences may be printed to Stdout.
func (h *Host) color() bool {
	_, _, terminal := h.Terminal()
	_, plain := h.env("NO_COLOR")
	kind, _ := h.env("TERM")
	return terminal && !plain && kind != "dumb"
}
