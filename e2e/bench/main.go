// Command bench measures what a step costs: a swampd, a worker with 64 slots that runs steps which do nothing, and 64
// submitters, as three processes on one machine, with synchronous writes. The floor, a synced append to a file beside
// the store, is measured in the same run; read the results against it.
//
//	go run ./e2e/bench
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
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
	submitters int
	slots      int
	single     time.Duration
	parallel   int
	wakes      int
	rounds     int
}

func parse() plan {
	var p plan
	flag.StringVar(&p.swampd, "swampd", "", "a built swampd; built anew if empty")
	flag.IntVar(&p.submitters, "submitters", 64, "clients that each submit a run and wait for its end")
	flag.IntVar(&p.slots, "slots", 64, "slots of the worker")
	flag.DurationVar(&p.single, "single", 10*time.Second, "how long single-step runs are submitted")
	flag.IntVar(&p.parallel, "parallel", 10_000, "steps of the one parallel run")
	flag.IntVar(&p.wakes, "wakes", 500, "submits to an idle worker")
	flag.IntVar(&p.rounds, "rounds", 3, "rounds of each; medians are printed")
	flag.Parse()
	return p
}

func run(ctx context.Context, out io.Writer) error {
	p := parse()
	b, err := start(ctx, p)
	if err != nil {
		return err
	}
	defer b.stop()

	floor, err := syncFloor(b.dir)
	if err != nil {
		return err
	}
	line(out, "%-58s p50 %s, p99 %s\n", "floor: append and sync of 300 bytes", round(floor.p50), round(floor.p99))

	var wakes []quantiles
	for range p.rounds {
		q, err := b.wakeUps(ctx, p.wakes)
		if err != nil {
			return fmt.Errorf("wake-ups: %w", err)
		}
		wakes = append(wakes, q)
	}
	w := medianQuantiles(wakes)
	line(out, "%-58s p50 %s (%.1f syncs), p99 %s (%.1f syncs)\n", "idle worker: submit call to step start", round(w.p50), ratio(w.p50, floor.p50),
		round(w.p99), ratio(w.p99, floor.p50))

	var rates, cpus []float64
	for range p.rounds {
		r, cpu, err := b.singles(ctx, p.submitters, p.single)
		if err != nil {
			return fmt.Errorf("single-step runs: %w", err)
		}
		rates, cpus = append(rates, r), append(cpus, cpu)
	}
	line(out, "%-58s %.0f a second, %.0f µs of swampd's CPU each\n", fmt.Sprintf("single-step runs from %d submitters", p.submitters), median(rates), median(cpus))

	rates, cpus = nil, nil
	for range p.rounds {
		r, cpu, err := b.fanOut(ctx, p.parallel)
		if err != nil {
			return fmt.Errorf("parallel run: %w", err)
		}
		rates, cpus = append(rates, r), append(cpus, cpu)
	}
	line(out, "%-58s %.0f steps a second, %.0f µs of swampd's CPU each\n", fmt.Sprintf("one run of %d parallel steps", p.parallel), median(rates), median(cpus))
	return ctx.Err()
}

// line prints one result. A reader that has gone wants no more.
func line(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// workflowOf is a workflow of n parallel steps that do nothing.
func workflowOf(n int) string {
	var b strings.Builder
	b.WriteString("name: bench\nlabels: {bench: noop}\nqueueTimeout: 0\njobs:\n  - name: main\n    steps:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - name: s%d\n        task: {type: model_method, modelType: bench/noop, methodName: run}\n", i)
	}
	return b.String()
}
