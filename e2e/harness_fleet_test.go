//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fleet is one orchestrator in a folder of its own, and everything that a test connects to it.
type fleet struct {
	t     testing.TB
	dir   string // holds all of it, and is HOME of every process
	data  string // the data directory
	addr  string // where swampd listens; the same after each start
	flags []string
	http  *http.Client

	d         *process   // the swampd that was started last
	processes []*process // all that were started
	files     int
}

// newFleet starts swampd with those flags. At the end of the test everything of the fleet is killed, and the test fails
// if anything outlives that.
func newFleet(t testing.TB, flags ...string) *fleet {
	t.Helper()
	f := idleFleet(t, flags...)
	f.start()
	return f
}

// idleFleet is a fleet without a swampd.
func idleFleet(t testing.TB, flags ...string) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{
		t: t, dir: dir, data: filepath.Join(dir, "data"), addr: freeAddress(t), flags: flags,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second},
	}
	if err := os.MkdirAll(filepath.Join(dir, "home", "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.end)
	return f
}

// end kills what is left, and looks for what got away.
func (f *fleet) end() {
	for _, p := range f.processes {
		p.kill()
		if race := strings.Join(p.stderr(), "\n"); strings.Contains(race, "DATA RACE") {
			f.t.Errorf("%s: %s", p.name, race)
		}
	}
	err := await(10*time.Second, func() error {
		if left := footprint(f.dir); len(left) > 0 {
			return fmt.Errorf("%d processes outlive everything that started them: %v", len(left), left)
		}
		return nil
	})
	if err != nil {
		f.t.Error(err)
		for _, p := range footprint(f.dir) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
		}
	}
	if f.t.Failed() && f.d != nil {
		f.t.Logf("the last swampd said: %s", f.d.text())
	}
}

// nextPort is where freeAddress looks next, over all tests.
var nextPort atomic.Int32

// freeAddress finds a port below those from which the system chooses for outgoing connections, so that nobody takes it
// while its swampd is down.
func freeAddress(t testing.TB) string {
	t.Helper()
	const lowest, count = 10_000, 20_000
	nextPort.CompareAndSwap(0, int32(os.Getpid()%count))
	for range count {
		addr := fmt.Sprintf("127.0.0.1:%d", lowest+nextPort.Add(1)%count)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (f *fleet) url() string { return "http://" + f.addr }

// env is the environment of every process of the fleet, with more.
func (f *fleet) env(more ...string) []string {
	home := filepath.Join(f.dir, "home")
	return append(append(cleanEnv(), "HOME="+home, "TMPDIR="+filepath.Join(home, "tmp")), more...)
}

// launch starts a program as part of the fleet.
func (f *fleet) launch(program string, o startOptions, args ...string) *process {
	f.t.Helper()
	o.env = f.env(o.env...)
	if o.dir == "" {
		o.dir = f.dir
	}
	p := startProcess(f.t, program, o, args...)
	f.processes = append(f.processes, p)
	return p
}

// start starts swampd on the data directory and waits until it is ready.
func (f *fleet) start() *process {
	f.t.Helper()
	f.launchSwampd()
	f.ready()
	return f.d
}

// launchSwampd starts swampd and does not wait.
func (f *fleet) launchSwampd(env ...string) *process {
	f.t.Helper()
	f.d = f.launch("swampd", startOptions{env: env}, append([]string{"--listen", f.addr, "--data-dir", f.data}, f.flags...)...)
	return f.d
}

// ready waits until swampd accepts connections.
func (f *fleet) ready() {
	f.t.Helper()
	eventually(f.t, 30*time.Second, "swampd is ready", func() error {
		if !f.d.alive() {
			f.t.Fatalf("swampd ended with %d: %s", f.d.code, f.d.text())
		}
		return f.askReady()
	})
}

func (f *fleet) askReady() error {
	r, err := f.http.Get(f.url() + "/readyz")
	if err != nil {
		return err
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// crash kills swampd as kill -9 does.
func (f *fleet) crash() { f.d.kill() }

// restart crashes swampd and starts it again.
func (f *fleet) restart() {
	f.t.Helper()
	f.crash()
	f.start()
}

// stop ends swampd with SIGTERM, and wants 0.
func (f *fleet) stop() {
	f.t.Helper()
	f.d.signal(syscall.SIGTERM)
	f.d.exits(40*time.Second, 0)
}

// admin is the server token.
func (f *fleet) admin() string {
	f.t.Helper()
	token, err := os.ReadFile(filepath.Join(f.data, "admin-token"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// path is a file below the folder of the fleet.
func (f *fleet) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

// write writes a file of its own and returns its path.
func (f *fleet) write(text string) string {
	f.t.Helper()
	f.files++
	path := f.path(fmt.Sprintf("flow-%d.yaml", f.files))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// lines reads a file that steps write to; one that does not exist has none.
func (f *fleet) lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// worker is a running swamp-worker.
type worker struct {
	*process
	f     *fleet
	name  string
	token string
	cache string
	url   string
	flags []string
}

// workerOptions are what a worker is started with. The zero value is a new machine with a token of its own.
type workerOptions struct {
	token, cache, url string
	env               []string
}

// worker starts a worker with a token of that name and waits until it is enrolled.
func (f *fleet) worker(name string, flags ...string) *worker {
	f.t.Helper()
	w := f.launchWorker(name, workerOptions{}, flags...)
	w.enrolled()
	return w
}

// launchWorker starts a worker and does not wait.
func (f *fleet) launchWorker(name string, o workerOptions, flags ...string) *worker {
	f.t.Helper()
	if o.token == "" {
		o.token = f.newToken(name)
	}
	if o.cache == "" {
		f.files++
		o.cache = f.path(fmt.Sprintf("cache-%d", f.files))
	}
	if o.url == "" {
		o.url = "ws://" + f.addr
	}
	args := append([]string{o.url, "--cache-dir", o.cache}, flags...)
	p := f.launch("swamp-worker", startOptions{env: append(o.env, "SWAMP_WORKER_TOKEN="+o.token)}, args...)
	return &worker{process: p, f: f, name: name, token: o.token, cache: o.cache, url: o.url, flags: flags}
}

// enrolled waits until the worker says that it is.
func (w *worker) enrolled() { w.t.Helper(); w.line(20*time.Second, "enrolled as ") }

// again starts another process of the same machine, as a supervisor does after a crash.
func (w *worker) again() *worker {
	w.t.Helper()
	return w.f.launchWorker(w.name, workerOptions{token: w.token, cache: w.cache, url: w.url}, w.flags...)
}

// newToken creates a token and returns it.
func (f *fleet) newToken(name string, flags ...string) string {
	f.t.Helper()
	var created struct{ Token string }
	f.json(&created, append([]string{"worker", "token", "create", name}, flags...)...)
	return created.Token
}
