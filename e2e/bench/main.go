// Command bench measures whole processes: a swampd with synchronous writes, workers, and clients, on one machine. The
// floor, a synced append to a file beside the store, is measured in the same run; read the results against it.
//
//	go run ./e2e/bench                  what a step costs: latency, rates, processor time
//	go run ./e2e/bench -only sizes      what many things cost: boot, restart, queue, fleet, output
//	go run ./e2e/bench -only drain,boot some of them
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/worker"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == worker.KeeperArg {
		os.Exit(worker.RunKeeper())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		exit(runWorker(ctx))
		return
	}
	exit(run(ctx, os.Stdout))
}

func exit(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is what is measured, and how much of it.
type plan struct {
	swampd     string
	only       []string
	submitters int
	slots      int
	single     time.Duration
	parallel   int
	wakes      int
	rounds     int
	scale      float64
}

func parse() plan {
	var p plan
	var only string
	flag.StringVar(&p.swampd, "swampd", "", "a built swampd; built anew if empty")
	flag.StringVar(&only, "only", "speed", "what to measure, by comma: speed (wake, single, parallel), sizes (boot, restart, drain, burst, queue, fleet, storm, leave, exodus, adopt, output)")
	flag.IntVar(&p.submitters, "submitters", 64, "clients that each submit a run and wait for its end")
	flag.IntVar(&p.slots, "slots", 64, "slots of the worker")
	flag.DurationVar(&p.single, "single", 10*time.Second, "how long single-step runs are submitted")
	flag.IntVar(&p.parallel, "parallel", 10_000, "steps of the one parallel run")
	flag.IntVar(&p.wakes, "wakes", 500, "submits to an idle worker")
	flag.IntVar(&p.rounds, "rounds", 3, "rounds of each; medians are printed")
	flag.Float64Var(&p.scale, "scale", 1, "the sizes of the sizes, as a part of 100,000 steps and 5,000 workers")
	flag.Parse()
	p.only = strings.Split(only, ",")
	return p
}

// wants tells whether a measure of a group is asked for.
func (p plan) wants(group, name string) bool {
	return slices.Contains(p.only, group) || slices.Contains(p.only, name)
}

func (p plan) size(n int) int { return max(1, int(float64(n)*p.scale)) }

func run(ctx context.Context, out io.Writer) error {
	p := parse()
	scratch, err := os.MkdirTemp("", "swamp-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // the system's own folder for what may go
	if p.swampd == "" {
		p.swampd = filepath.Join(scratch, "swampd")
		build := exec.CommandContext(ctx, "go", "build", "-o", p.swampd, "./cmd/swampd")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build swampd: %w", err)
		}
	}
	floor, err := syncFloor(scratch)
	if err != nil {
		return err
	}
	r := report{out}
	r.line("floor: append and sync of 300 bytes", "p50 %s, p99 %s", round(floor.p50), round(floor.p99))
	r.line("floor: question and answer of two goroutines", "%s of CPU", turnFloor())
	return errors.Join(reportSpeed(ctx, p, r, floor), reportSizes(ctx, p, r), ctx.Err())
}

// report prints results.
type report struct{ out io.Writer }

// line prints one result. A reader that has gone wants no more.
func (r report) line(what, format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, "%-60s %s\n", what, fmt.Sprintf(format, args...))
}

// cost prints what a step takes.
func (r report) cost(what string, costs []cost) {
	c := medianCost(costs)
	r.line(what, "%.0f a second, CPU of each: swampd %.0f µs, worker %.0f µs, clients %.0f µs", c.perSecond, c.swampd, c.worker, c.clients)
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }
