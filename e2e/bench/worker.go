package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// workerArg makes this program the worker.
const workerArg = "__worker"

// Models of the bench's worker. A workflow that is to wait for this worker has labels of it.
const (
	modelNoop = "bench/noop" // says when it started
	modelHold = "bench/hold" // says so, and does not end
)

// stamps are moments in the worker's life: what happened, and when.
type stamp struct {
	what byte
	at   time.Time
}

const (
	stampConnecting = 'c'
	stampEnrolled   = 'e'
	stampStarted    = 's'
	stampSize       = 9
)

// workerProcess is the worker, as a process of its own that says when each step starts.
type workerProcess struct {
	cmd    *exec.Cmd
	stamps chan stamp
	wg     sync.WaitGroup
}

// startWorker starts a worker with those labels, and waits until it has enrolled.
func (s *server) startWorker(ctx context.Context, slots int, labels messages.Labels) (*workerProcess, error) {
	w, err := s.spawnWorker(ctx, slots, labels)
	if err != nil {
		return nil, err
	}
	if _, err := w.await(ctx, stampEnrolled, 1); err != nil {
		return nil, fmt.Errorf("the worker has not enrolled: %w", err)
	}
	return w, nil
}

func (s *server) spawnWorker(ctx context.Context, slots int, labels messages.Labels) (*workerProcess, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	s.workers++
	name := "bench-" + strconv.Itoa(s.workers)
	token, err := c.token(ctx, name)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var words []string
	for _, l := range labels {
		words = append(words, l.Key+"="+l.Value)
	}
	args := []string{workerArg, s.url, strconv.Itoa(slots), filepath.Join(s.dir, name), strings.Join(words, ",")}
	w := &workerProcess{cmd: exec.CommandContext(ctx, self, args...), stamps: make(chan stamp, 1<<18)}
	w.cmd.Env = append(os.Environ(), "BENCH_TOKEN="+token)
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	w.wg.Go(func() { w.read(out) })
	return w, nil
}

// read takes the stamps; who does not want them lets them go.
func (w *workerProcess) read(out io.Reader) {
	in := bufio.NewReader(out)
	var data [stampSize]byte
	for {
		if _, err := io.ReadFull(in, data[:]); err != nil {
			close(w.stamps)
			return
		}
		select {
		case w.stamps <- stamp{data[0], time.Unix(0, int64(binary.LittleEndian.Uint64(data[1:])))}:
		default:
		}
	}
}

// await returns the moment of the nth stamp of a kind from now on.
func (w *workerProcess) await(ctx context.Context, what byte, n int) (time.Time, error) {
	for {
		select {
		case s, open := <-w.stamps:
			if !open {
				return time.Time{}, errors.New("the worker has ended")
			}
			if s.what != what {
				continue
			}
			if n--; n == 0 {
				return s.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

func (w *workerProcess) drain() {
	for {
		select {
		case _, open := <-w.stamps:
			if !open {
				return
			}
		default:
			return
		}
	}
}

func (w *workerProcess) stop() { w.end(syscall.SIGTERM) }

// kill ends the worker as a crash would.
func (w *workerProcess) kill() { w.end(syscall.SIGKILL) }

func (w *workerProcess) end(signal syscall.Signal) {
	_ = w.cmd.Process.Signal(signal)
	w.wg.Wait()
	_ = w.cmd.Wait()
}

// noop is a step that does nothing but say when it started, and with hold goes on until it is cancelled.
type noop struct{ hold bool }

func (n noop) Run(ctx context.Context, _ worker.Task, _ worker.Output) (map[string]string, error) {
	err := say(stampStarted, time.Now())
	if n.hold {
		<-ctx.Done()
	}
	return nil, err
}

func say(what byte, at time.Time) error {
	var data [stampSize]byte
	data[0] = what
	binary.LittleEndian.PutUint64(data[1:], uint64(at.UnixNano()))
	_, err := os.Stdout.Write(data[:])
	return err
}

// runWorker is the worker's process.
func runWorker(ctx context.Context) error {
	if len(os.Args) != 6 {
		return errors.New("usage: bench " + workerArg + " URL SLOTS CACHE LABELS")
	}
	slots, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	var labels messages.Labels
	for word := range strings.SplitSeq(os.Args[5], ",") {
		key, value, _ := strings.Cut(word, "=")
		labels = append(labels, messages.Label{Key: key, Value: value})
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	executor, err := worker.NewExecutor(worker.ExecutorConfig{
		CacheDir: os.Args[4], Logger: log, Models: map[string]worker.Model{modelNoop: noop{}, modelHold: noop{hold: true}},
	})
	if err != nil {
		return err
	}
	agent, err := worker.New(worker.Config{
		URL: os.Args[2], Token: messages.Secret(os.Getenv("BENCH_TOKEN")), Labels: labels,
		Concurrency: slots, CacheDir: os.Args[4], Executor: executor, Logger: log,
		OnEvent: func(e worker.Event) {
			switch e.Kind {
			case worker.EventConnecting:
				_ = say(stampConnecting, e.At) // nobody listens any more
			case worker.EventEnrolled:
				_ = say(stampEnrolled, e.At)
			}
		},
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
