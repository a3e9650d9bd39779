package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
)

// quantiles of durations.
type quantiles struct{ p50, p99 time.Duration }

func quantilesOf(d []time.Duration) quantiles {
	slices.Sort(d)
	if len(d) == 0 {
		return quantiles{}
	}
	return quantiles{d[len(d)/2], d[min(len(d)-1, len(d)*99/100)]}
}

func medianQuantiles(q []quantiles) quantiles {
	var p50, p99 []time.Duration
	for _, x := range q {
		p50, p99 = append(p50, x.p50), append(p99, x.p99)
	}
	slices.Sort(p50)
	slices.Sort(p99)
	return quantiles{p50[len(p50)/2], p99[len(p99)/2]}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// syncFloor measures what one durable write costs on the store's disk.
func syncFloor(dir string) (quantiles, error) {
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		return quantiles{}, err
	}
	defer func() { _ = f.Close() }() // a scratch file
	data := make([]byte, 300)
	var times []time.Duration
	for range 500 {
		begin := time.Now()
		if _, err := f.Write(data); err != nil {
			return quantiles{}, err
		}
		if err := f.Sync(); err != nil {
			return quantiles{}, err
		}
		times = append(times, time.Since(begin))
	}
	return quantilesOf(times), nil
}

// speed is a server and its worker, for the measures of what a step costs.
type speed struct {
	*server
	worker *workerProcess
}

func startSpeed(ctx context.Context, p plan) (*speed, error) {
	s, err := newServer(p.swampd)
	if err != nil {
		return nil, err
	}
	b := &speed{server: s}
	if _, err := s.start(ctx); err != nil {
		b.stop()
		return nil, err
	}
	if b.worker, err = s.startWorker(ctx, p.slots, messages.Labels{benchLabel()}); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *speed) stop() {
	if b.worker != nil {
		b.worker.stop()
	}
	b.remove()
}

// wakeUps submits one run at a time to an idle worker, and measures from the call to the moment at which the step's
// code runs in the worker's process.
func (b *speed) wakeUps(ctx context.Context, n int) (quantiles, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return quantiles{}, err
	}
	defer c.close()
	source := workflowOf(1)
	var times []time.Duration
	for range n {
		b.worker.drain()
		begin := time.Now()
		if err := c.run(ctx, source); err != nil {
			return quantiles{}, err
		}
		at, err := b.worker.await(ctx, stampStarted, 1)
		if err != nil {
			return quantiles{}, fmt.Errorf("the step did not start: %w", err)
		}
		times = append(times, at.Sub(begin))
	}
	return quantilesOf(times), nil
}

// cost is what a step takes.
type cost struct {
	perSecond float64
	// Processor time of each, in microseconds: of swampd, of the worker, and of the clients.
	swampd, worker, clients float64
}

// spent is the processor time that everybody has used so far.
func (b *speed) spent() [3]time.Duration {
	return [3]time.Duration{b.cpu(), cpuOf(b.worker.cmd.Process.Pid), cpuOf(os.Getpid())}
}

func (b *speed) costSince(begin time.Time, before [3]time.Duration, steps int) cost {
	took, now := time.Since(begin), b.spent()
	each := func(i int) float64 { return float64((now[i] - before[i]).Microseconds()) / float64(steps) }
	return cost{float64(steps) / took.Seconds(), each(0), each(1), each(2)}
}

func medianCost(costs []cost) cost {
	of := func(field func(cost) float64) float64 {
		var x []float64
		for _, c := range costs {
			x = append(x, field(c))
		}
		return median(x)
	}
	return cost{
		of(func(c cost) float64 { return c.perSecond }), of(func(c cost) float64 { return c.swampd }),
		of(func(c cost) float64 { return c.worker }), of(func(c cost) float64 { return c.clients }),
	}
}

// singles submits single-step runs from many clients, each waiting for its run's end.
func (b *speed) singles(ctx context.Context, submitters int, during time.Duration) (c cost, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source := workflowOf(1)
	clients := make([]*client, submitters)
	for i := range clients {
		if clients[i], err = b.connect(ctx); err != nil {
			return c, err
		}
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	counts := make([]int, submitters)
	var wg sync.WaitGroup
	before := b.spent()
	begin := time.Now()
	for i, c := range clients {
		wg.Go(func() {
			for time.Since(begin) < during && ctx.Err() == nil {
				if err := c.run(ctx, source); err != nil {
					cancel(err)
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return c, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return b.costSince(begin, before, total), nil
}

// fanOut submits one run of many parallel steps, and waits for its end.
func (b *speed) fanOut(ctx context.Context, steps int) (cost, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return cost{}, err
	}
	defer c.close()
	source := workflowOf(steps)
	before := b.spent()
	begin := time.Now()
	if err := c.run(ctx, source); err != nil {
		return cost{}, err
	}
	return b.costSince(begin, before, steps), nil
}

// turnFloor measures the processor time of a question and its answer between two goroutines, with as many small
// allocations as a cheap actor needs for it: how fast this machine is just now at what an orchestrator does.
func turnFloor() time.Duration {
	type message struct {
		text  [8]uint64
		reply chan *message
	}
	questions := make(chan *message)
	go func() {
		for q := range questions {
			q.reply <- &message{text: q.text}
		}
	}()
	const turns = 200_000
	before := cpuTime()
	for i := range turns {
		q := &message{reply: make(chan *message, 1)}
		q.text[0] = uint64(i)
		questions <- q
		<-q.reply
	}
	close(questions)
	return (cpuTime() - before) / turns
}
