package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// workerArg makes this program the worker.
const workerArg = "__worker"

// bench is the orchestrator and the worker under measurement.
type bench struct {
	dir    string
	url    string
	admin  string
	swampd *exec.Cmd
	worker *workerProcess
}

// start builds what is needed and starts both processes.
func start(ctx context.Context, p plan) (*bench, error) {
	dir, err := os.MkdirTemp("", "swamp-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir}
	if p.swampd == "" {
		p.swampd = filepath.Join(dir, "swampd")
		build := exec.CommandContext(ctx, "go", "build", "-o", p.swampd, "./cmd/swampd")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, errors.Join(fmt.Errorf("build swampd: %w", err), os.RemoveAll(dir))
		}
	}
	if err := b.startSwampd(ctx, p); err != nil {
		b.stop()
		return nil, err
	}
	if b.worker, err = startWorker(ctx, b, p.slots); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bench) startSwampd(ctx context.Context, p plan) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	b.url = "http://" + addr
	data := filepath.Join(b.dir, "data")
	b.swampd = exec.CommandContext(ctx, p.swampd, "--listen", addr, "--data-dir", data, "--loopback", "off", "--queue-timeout", "0", "--log-level", "warn")
	b.swampd.Stderr = os.Stderr
	if err := b.swampd.Start(); err != nil {
		return fmt.Errorf("start swampd: %w", err)
	}
	if err := eventually(ctx, 20*time.Second, func() bool { return b.ready(ctx) }); err != nil {
		return fmt.Errorf("swampd is not ready: %w", err)
	}
	token, err := os.ReadFile(filepath.Join(data, "admin-token"))
	b.admin = strings.TrimSpace(string(token))
	return err
}

func (b *bench) ready(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/readyz", nil)
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

// eventually looks every few milliseconds until something holds.
func eventually(ctx context.Context, within time.Duration, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
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

func (b *bench) stop() {
	if b.worker != nil {
		b.worker.stop()
	}
	if b.swampd != nil && b.swampd.Process != nil {
		_ = b.swampd.Process.Signal(syscall.SIGTERM)
		_ = b.swampd.Wait()
	}
	_ = os.RemoveAll(b.dir)
}

// cpu is the processor time that swampd has used.
func (b *bench) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.swampd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const ticks = 100 // of a second, on every Linux that we know
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticks
}

// client is one submitter.
type client struct {
	conn *websocket.Conn
	next int
}

func (b *bench) connect(ctx context.Context) (*client, error) {
	conn, _, err := websocket.Dial(ctx, b.url+messages.Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + b.admin}}, Subprotocols: []string{messages.Subprotocol},
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(messages.MaxFrame)
	return &client{conn: conn}, nil
}

func (c *client) close() { _ = c.conn.CloseNow() }

// call sends a request and returns its answer.
func (c *client) call(ctx context.Context, r *messages.Request) (*messages.Response, error) {
	c.next++
	data, err := messages.EncodeFrame(&messages.Frame{Id: strconv.Itoa(c.next), Body: &messages.Frame_Request{Request: r}}, messages.CodingProtobuf)
	if err != nil {
		return nil, err
	}
	if err := c.conn.Write(ctx, websocket.MessageBinary, data); err != nil {
		return nil, err
	}
	for {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			return nil, err
		}
		f, err := messages.DecodeFrame(data, messages.CodingProtobuf)
		if err != nil {
			return nil, err
		}
		switch {
		case f.GetResponse() != nil:
			return f.GetResponse(), nil
		case f.GetError() != nil:
			return nil, f.GetError().Fault()
		}
	}
}

// run submits a workflow and waits for the end of its run.
func (c *client) run(ctx context.Context, source string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	r, err := c.call(ctx, messages.NewRequest(messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: id.String(), Source: source, Follow: true}))
	if err != nil {
		return err
	}
	if s := r.GetWorkflowRun().GetStatus(); s != string(messages.RunSucceeded) {
		return fmt.Errorf("run %s ended as %s", id, s)
	}
	return nil
}

// workerProcess is the worker, as a process of its own that says when each step starts.
type workerProcess struct {
	cmd    *exec.Cmd
	starts chan time.Time
	wg     sync.WaitGroup
}

func startWorker(ctx context.Context, b *bench, slots int) (*workerProcess, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r, err := c.call(ctx, messages.NewRequest(messages.VerbWorkerTokenCreate, &messages.WorkerTokenCreateParams{Name: "bench"}))
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &workerProcess{cmd: exec.CommandContext(ctx, self, workerArg, b.url, strconv.Itoa(slots), filepath.Join(b.dir, "cache")), starts: make(chan time.Time, 1<<16)}
	w.cmd.Env = append(os.Environ(), "BENCH_TOKEN="+r.GetWorkerTokenCreate().GetToken())
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	w.wg.Go(func() { w.read(out) })
	enrolled := func() bool {
		list, err := c.call(ctx, messages.NewRequest(messages.VerbWorkerList, &messages.WorkerListParams{}))
		return err == nil && len(list.GetWorkerList().GetItems()) > 0
	}
	if err := eventually(ctx, 10*time.Second, enrolled); err != nil {
		return nil, fmt.Errorf("the worker has not enrolled: %w", err)
	}
	return w, nil
}

// read takes the times at which steps started; who does not want them lets them go.
func (w *workerProcess) read(out io.Reader) {
	in := bufio.NewReader(out)
	var stamp [8]byte
	for {
		if _, err := io.ReadFull(in, stamp[:]); err != nil {
			return
		}
		select {
		case w.starts <- time.Unix(0, int64(binary.LittleEndian.Uint64(stamp[:]))):
		default:
		}
	}
}

func (w *workerProcess) drainStarts() {
	for {
		select {
		case <-w.starts:
		default:
			return
		}
	}
}

func (w *workerProcess) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	w.wg.Wait()
	_ = w.cmd.Wait()
}

// noop is a step that does nothing but say when it started.
type noop struct{}

func (noop) Run(context.Context, worker.Task, worker.Output) (map[string]string, error) {
	var stamp [8]byte
	binary.LittleEndian.PutUint64(stamp[:], uint64(time.Now().UnixNano()))
	_, err := os.Stdout.Write(stamp[:])
	return nil, err
}

// runWorker is the worker's process.
func runWorker(ctx context.Context) error {
	if len(os.Args) != 5 {
		return errors.New("usage: bench " + workerArg + " URL SLOTS CACHE")
	}
	slots, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	executor, err := worker.NewExecutor(worker.ExecutorConfig{CacheDir: os.Args[4], Logger: log, Models: map[string]worker.Model{"bench/noop": noop{}}})
	if err != nil {
		return err
	}
	agent, err := worker.New(worker.Config{
		URL: os.Args[2], Token: messages.Secret(os.Getenv("BENCH_TOKEN")), Labels: messages.Labels{{Key: "bench", Value: "noop"}},
		Concurrency: slots, CacheDir: os.Args[4], Executor: executor, Logger: log,
	})
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	term := make(chan os.Signal, 1)
	notifyTerm(term)
	go func() {
		<-term
		cancel()
	}()
	_, err = agent.Run(stop)
	return err
}
