package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// AdminTokenFile is the file in the data directory that holds the server token.
const AdminTokenFile = "admin-token"

// Config is what an orchestrator is made of.
type Config struct {
	// Listen is the address, as host:port.
	Listen string
	// DataDir holds everything.
	DataDir string
	// QueueTimeout is how long a step waits for a worker, where its workflow does not say; 0 is for ever.
	QueueTimeout time.Duration
	// Grace is how long a lost connection of a worker may take to come back.
	Grace time.Duration
	// Loopback: steps without a placement run in this process.
	Loopback bool
	// ShipEnv is what is sent to steps, as NAME=VALUE.
	ShipEnv []string
	// TLSCert and TLSKey are files, or both empty.
	TLSCert, TLSKey string
	// Retention says how long what is over is kept.
	Retention Retention
	// Version is the program's.
	Version string
	// Logger is required.
	Logger *slog.Logger
}

// Retention says how long what is over is kept. A zero field is the orchestrator's default; below zero there is no bound.
type Retention struct {
	// Runs is how long an ended run is kept, and an ended enrollment token; MaxRuns how many ended runs are, the newest ones.
	Runs    time.Duration
	MaxRuns int
	// Workers is how long a worker that is disconnected is kept.
	Workers time.Duration
}

// Engine makes orchestrators, and looks after the stores of those that are stopped.
type Engine interface {
	// Start starts an orchestrator, or leaves nothing behind.
	Start(ctx context.Context, cfg Config) (Orchestrator, error)
	// Check looks at every byte of a data directory.
	Check(dir string) (Report, error)
	// Restore makes a data directory of a backup.
	Restore(from io.ReadSeeker, dir string) (persistence.BackupInfo, error)
}

// Orchestrator is one that runs.
type Orchestrator interface {
	// URL is where a client of this machine finds it, and Token the server token that it wants.
	URL() string
	Token() messages.Secret
	// Failed is closed when something ended that must not; Failure says what, and is nil before.
	Failed() <-chan struct{}
	Failure() error
	// Stop ends it. It is called once.
	Stop(ctx context.Context) error
}

// Report is what a check has found.
type Report struct {
	persistence.CheckReport
	OutputLogs  int
	OutputBytes uint64
	// Torn are the logs that end in the middle of a write, which nobody was told is durable.
	Torn int
	// BodyFiles are the bodies that are files, BodyBytes what they hold, and Orphans those that no record names.
	BodyFiles int
	BodyBytes uint64
	Orphans   int
}

// StepTools are what steps find before all other programs: this one, under the name by which it is the client's. The three
// programs are one code base.
func StepTools() (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return map[string]string{"swamp": self}, nil
}

// ReadTokenFile reads a token from a file that a person, or this program, made.
func ReadTokenFile(name string) (messages.Secret, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if len(data) > 1<<16 {
		return "", fmt.Errorf("%s is too large for a token", name)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("%s is empty", name)
	}
	return messages.Secret(token), nil
}

// PlainPathError drops the path, which the sentence has already.
func PlainPathError(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
