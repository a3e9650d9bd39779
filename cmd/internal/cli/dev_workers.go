package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// devWorkers are the child processes of swamp dev.
type devWorkers struct {
	host   *Host
	client *client
	url    string
	dir    string // for identities and logs

	mu       sync.Mutex
	note     func(string)
	leaving  bool
	children []*exec.Cmd
	running  sync.WaitGroup
}

// start admits and starts the workers of a fleet.
func (d *devWorkers) start(ctx context.Context, fleet []devWorker) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	for _, w := range fleet {
		token, err := answer[*messages.WorkerTokenCreateResult](d.client.call(ctx, messages.VerbWorkerTokenCreate,
			&messages.WorkerTokenCreateParams{Name: w.name}, false))
		if err != nil {
			return fmt.Errorf("admit %s: %w", w.name, err)
		}
		if err := d.startOne(self, w, token.GetToken()); err != nil {
			return fmt.Errorf("start %s: %w", w.name, err)
		}
	}
	return nil
}

func (d *devWorkers) startOne(self string, w devWorker, token string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaving {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(d.dir, w.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has it open
	// A worker that connects once ends with its orchestrator, also if that is killed.
	args := []string{"worker", "connect", d.url, "--no-reconnect", "--output", "json", "--cache-dir", filepath.Join(d.dir, w.name)}
	for _, l := range w.labels {
		args = append(args, "--label", l.Key+"="+l.Value)
	}
	child := exec.Command(self, args...)
	child.Args[0] = string(Swamp) // which this program may be under another name
	child.Env = append(withoutOurs(d.host.Environ()), envWorkerToken+"="+token)
	child.Stderr = log
	child.SysProcAttr = ownGroup()
	events, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	d.children = append(d.children, child)
	d.running.Go(func() { // ends with the child
		d.follow(w, events)
		_ = child.Wait() // how it ended is among its events
	})
	return nil
}

// withoutOurs returns the environment without the variables that would change what a worker does.
func withoutOurs(env []string) []string {
	var rest []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SWAMP") {
			rest = append(rest, e)
		}
	}
	return rest
}

// follow tells of a worker's life what a person wants to see beside the run.
func (d *devWorkers) follow(w devWorker, events io.Reader) {
	lines := bufio.NewScanner(events)
	for lines.Scan() {
		var e struct{ Kind, Reason, Error string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Kind == worker.EventEnrolled:
			d.tell("worker " + w.describe() + " enrolled")
		case e.Kind == worker.EventStopped && e.Error != "":
			d.tell("worker " + w.name + " stopped: " + e.Error)
		}
	}
}

func (d *devWorkers) tell(text string) {
	d.mu.Lock()
	note := d.note
	leaving := d.leaving
	d.mu.Unlock()
	if !leaving && note != nil {
		note(text)
	}
}

// quiet stops telling: what shows the run is closed.
func (d *devWorkers) quiet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = nil
}

// drain asks every worker to leave, waits, and kills those that did not.
func (d *devWorkers) drain(patience time.Duration) {
	d.mu.Lock()
	d.leaving = true
	for _, child := range d.children {
		_ = askToStop(child.Process) // it may have ended
	}
	d.mu.Unlock()
	limit := time.AfterFunc(patience, d.kill)
	defer limit.Stop()
	d.running.Wait()
}

// kill ends every worker at once. Their keepers kill what they ran.
func (d *devWorkers) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = true
	for _, child := range d.children {
		_ = child.Process.Kill() // it may have ended
	}
}
