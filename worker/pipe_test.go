package worker

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

// outputBytes is what a test's step prints: each byte tells where it stands, and none looks like the token.
func outputBytes(from, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((from+i)*31>>5) | 0x80
	}
	return p
}

// printer is a step that prints total bytes in pieces, and ends.
type printer struct {
	total, piece int
	printed      chan int // how much it has printed, when asked
	done         chan struct{}
}

func newPrinter(total, piece int) *printer {
	return &printer{total: total, piece: piece, printed: make(chan int, 1), done: make(chan struct{})}
}

func (p *printer) run(_ context.Context, _ Task, started func(), out Output) Outcome {
	started()
	defer close(p.done)
	for n := 0; n < p.total; {
		size := min(p.piece, p.total-n)
		if err := out.Write(Stdout, outputBytes(n, size)); err != nil {
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: err.Error()}
		}
		n += size
		select {
		case <-p.printed:
		default:
		}
		p.printed <- n
	}
	return Outcome{Status: OutcomeSucceeded}
}

// taker takes and acknowledges the output of one dispatch.
type taker struct {
	c     *conn
	frame string
	got   int
}

// until takes output until there are n bytes, or, with 0, until the result, which it returns.
func (k *taker) until(n int) *messages.DispatchResult {
	k.c.t.Helper()
	for n == 0 || k.got < n {
		f := k.c.read()
		if f.GetRequest().GetWorkerStatus() != nil {
			k.c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
			continue
		}
		if f.GetId() != k.frame {
			k.c.t.Fatalf("the worker says %q", describe(f))
		}
		if r := f.GetResponse().GetWorkerDispatch(); r != nil {
			if n > 0 {
				k.c.t.Fatalf("the result comes after %d bytes", k.got)
			}
			return r
		}
		c := f.GetEvent().GetOutput()
		if c == nil || int(c.GetOffset())+len(c.GetData()) <= k.got {
			continue
		}
		if int(c.GetOffset()) != k.got || !bytes.Equal(c.GetData(), outputBytes(k.got, len(c.GetData()))) {
			k.c.t.Fatalf("at %d comes other output, for %d", k.got, c.GetOffset())
		}
		k.got += len(c.GetData())
		k.c.ackOf(k.frame, uint32(k.got), false)
	}
	return nil
}

// withCache gives the worker a folder.
func withCache(dir string, more ...func(*Config)) func(*Config) {
	return func(c *Config) {
		c.CacheDir = dir
		for _, f := range more {
			f(c)
		}
	}
}

func TestAgent_OutputWaitsOnDisk(t *testing.T) {
	const total = 20 << 20
	for _, tt := range []struct {
		name  string
		piece int
	}{{"in large pieces", 100_000}, {"in small ones", 1000}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				step := newPrinter(total, tt.piece)
				o := startAgent(t, step.run, withCache(dir)).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				k := taker{c: c, frame: "d1/1"}
				k.until(3 << 20)
				k.c = o.cut(c)
				<-step.done // nothing holds it
				synctest.Wait()
				size, files := spoolSizes(t, spoolRoot(dir))
				if used := o.agent.out.used; used > creditLimit || size < total-4<<20-creditLimit || files > spoolFiles {
					t.Errorf("%d bytes are in memory, %d in %d files", used, size, files)
				}
				in := k.c.enroll.GetInFlight()
				if len(in) != 1 || in[0].GetOutputOffset() > total {
					t.Errorf("in flight %v", in)
				}
				k.c.admitWith(verdict("d1", 2, verdictResume, uint32(k.got)))
				k.frame = "d1/2"
				k.until(10 << 20)
				k.c = o.cut(k.c) // in the middle of it
				if in := k.c.inFlight(); len(in) != 1 || in[0] != "d1/2 ended 20971520 succeeded" {
					t.Errorf("in flight %v", in)
				}
				k.c.admitWith(verdict("d1", 2, verdictResume, uint32(k.got)))
				if r := k.until(0); k.got != total || r.GetFinalOffset() != total {
					t.Errorf("%d bytes came, the result is %v", k.got, r)
				}
				k.c.ackOf("d1/2", total, true)
				synctest.Wait()
				if _, files := spoolSizes(t, spoolRoot(dir)); files > 0 || len(o.agent.pipes) > 0 || o.agent.out.used != 0 {
					t.Errorf("%d files, %d pipes are left, %d bytes in use", files, len(o.agent.pipes), o.agent.out.used)
				}
			})
		})
	}
}

// TestAgent_OutputBlocksWhenNothingTakesItAnyMore: the disk has its share, or there is none, or it takes nothing.
func TestAgent_OutputBlocksWhenNothingTakesItAnyMore(t *testing.T) {
	const total = 5 << 20
	tests := []struct {
		name  string
		cache bool
		limit int64
		spoil bool // nothing can be written there
		least int  // that it can print
		most  int
	}{
		{"a full spool", true, 1 << 20, false, creditLimit + 1<<19, creditLimit + 1<<20},
		{"no disk", false, 0, false, creditLimit - chunkBytes, creditLimit},
		{"a disk that takes nothing", true, 0, true, creditLimit - chunkBytes, creditLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.spoil {
				if err := os.WriteFile(spoolRoot(dir), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			inBubble(t, func(t *testing.T) {
				log := &syncBuffer{}
				step := newPrinter(total, 10_000)
				o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
					if tt.spoil {
						if err := os.WriteFile(spoolRoot(dir), nil, 0o600); err != nil {
							t.Error(err)
						}
					}
					return step.run(ctx, task, started, out)
				}, func(c *Config) {
					c.SpoolBytes, c.Logger = tt.limit, slog.New(slog.NewTextHandler(log, nil))
					if tt.cache {
						c.CacheDir = dir
					}
				}).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				c = o.cut(c)
				c.admitWith() // it waits, and pings are answered
				c.silent(30 * time.Second)
				if n := <-step.printed; n < tt.least || n > tt.most {
					t.Errorf("it could print %d bytes, want %d to %d", n, tt.least, tt.most)
				}
				if n := strings.Count(log.String(), "cannot be put on disk"); tt.spoil && n != 1 || !tt.spoil && n > 0 {
					t.Errorf("it says so %d times: %s", n, log)
				}
				if tt.spoil { // and now it takes something again
					if err := os.Remove(spoolRoot(dir)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * spoolRetry)
					<-step.done
					if n := strings.Count(log.String(), "can be put on disk again"); n != 1 {
						t.Errorf("%s", log)
					}
				}
				c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation = 2 })
				k := taker{c: c, frame: "d1/2"}
				if r := k.until(0); k.got != total || r.GetStatus() != OutcomeSucceeded {
					t.Errorf("%d bytes came, the result is %v", k.got, r)
				}
			})
		})
	}
}

func TestAgent_OutputThatCannotBeReadBackFailsItsStep(t *testing.T) {
	for _, ended := range []bool{true, false} {
		t.Run(map[bool]string{true: "that has ended", false: "that runs"}[ended], func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				free := make(chan struct{})
				o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
					started()
					if err := out.Write(Stdout, outputBytes(0, 3*creditLimit)); err != nil {
						t.Error(err)
					}
					if !ended {
						<-free
						if err := out.Write(Stdout, []byte("more")); !errors.Is(err, errDropped) {
							t.Errorf("error %v", err)
						}
					}
					return Outcome{Status: OutcomeSucceeded}
				}, withCache(dir)).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				synctest.Wait()
				files, err := filepath.Glob(filepath.Join(spoolRoot(dir), "*"))
				if err != nil || len(files) == 0 {
					t.Fatalf("files %v, %v", files, err)
				}
				if err := os.Truncate(files[0], 100); err != nil {
					t.Fatal(err)
				}
				k := taker{c: c, frame: "d1/1"}
				k.until(creditLimit)
				synctest.Wait() // it was tried to be read
				close(free)
				r := k.until(0)
				if r.GetStatus() != OutcomeFailed || r.GetCode() != CodeInternal || !strings.Contains(r.GetError(), "could not read the step's output back") {
					t.Errorf("result %v", r)
				}
				if int(r.GetFinalOffset()) != k.got {
					t.Errorf("%d bytes came, the result says %d", k.got, r.GetFinalOffset())
				}
				c.ack("d1", uint32(k.got), true)
				synctest.Wait()
				if _, left := spoolSizes(t, spoolRoot(dir)); left > 0 {
					t.Errorf("%d files are left", left)
				}
			})
		})
	}
}

func TestAgent_AKilledWorkerReportsWithoutWhatIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			started()
			if err := out.Write(Stdout, outputBytes(0, 3*creditLimit)); err != nil {
				t.Error(err)
			}
			return untilStopped(ctx, task, func() {}, out)
		}, withCache(dir)).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		synctest.Wait()
		o.agent.Kill()
		k := taker{c: c, frame: "d1/1"}
		r := k.until(0)
		if r.GetStatus() != statusLost || int(r.GetFinalOffset()) != k.got || k.got < creditLimit-chunkBytes {
			t.Errorf("%d bytes came, the result is %v", k.got, r)
		}
		c.ack("d1", uint32(k.got), true)
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
		if _, files := spoolSizes(t, spoolRoot(dir)); files > 0 {
			t.Errorf("%d files are left", files)
		}
	})
}

func TestAgent_WhatIsGivenUpLeavesNothingOnDisk(t *testing.T) {
	for name, giveUp := range map[string]func(*orchestrator, *conn){
		"abort": func(_ *orchestrator, c *conn) {
			c.request("q", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "d1", Generation: 1})
		},
		"done":               func(_ *orchestrator, c *conn) { c.ack("d1", 0, true) },
		"verdict":            func(o *orchestrator, c *conn) { o.cut(c).admitWith(verdict("d1", 1, verdictAbort, 0)) },
		"the worker's leave": func(o *orchestrator, _ *conn) { o.agent.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				step := newPrinter(100<<20, 100_000)
				o := startAgent(t, step.run, withCache(dir, func(c *Config) { c.SpoolBytes = 4 << 20 })).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				synctest.Wait()
				if _, files := spoolSizes(t, spoolRoot(dir)); files == 0 {
					t.Fatal("nothing is on disk")
				}
				giveUp(o, c)
				<-step.done // its output fails
				time.Sleep(10 * time.Second)
				if _, files := spoolSizes(t, spoolRoot(dir)); files > 0 {
					t.Errorf("%d files are left", files)
				}
			})
		})
	}
}

func TestAgent_SweepsOldSpoolsWhenItStarts(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(spoolRoot(dir), "1-0")
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T) {
		startAgent(t, succeed, withCache(dir)).run().enrolled()
		if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	})
}
