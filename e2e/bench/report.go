package main

import (
	"context"
	"fmt"
)

// reportSpeed measures what a step costs.
func reportSpeed(ctx context.Context, p plan, r report, floor quantiles) error {
	if !p.wants("speed", "wake") && !p.wants("speed", "single") && !p.wants("speed", "parallel") {
		return nil
	}
	b, err := startSpeed(ctx, p)
	if err != nil {
		return err
	}
	defer b.stop()
	if p.wants("speed", "wake") {
		var wakes []quantiles
		for range p.rounds {
			q, err := b.wakeUps(ctx, p.wakes)
			if err != nil {
				return fmt.Errorf("wake-ups: %w", err)
			}
			wakes = append(wakes, q)
		}
		w := medianQuantiles(wakes)
		r.line("idle worker: submit call to step start", "p50 %s (%.1f syncs), p99 %s (%.1f syncs)", round(w.p50), ratio(w.p50, floor.p50),
			round(w.p99), ratio(w.p99, floor.p50))
	}
	if p.wants("speed", "single") {
		var costs []cost
		for range p.rounds {
			c, err := b.singles(ctx, p.submitters, p.single)
			if err != nil {
				return fmt.Errorf("single-step runs: %w", err)
			}
			costs = append(costs, c)
		}
		r.cost(fmt.Sprintf("single-step runs from %d submitters", p.submitters), costs)
	}
	if p.wants("speed", "parallel") {
		var costs []cost
		for range p.rounds {
			c, err := b.fanOut(ctx, p.parallel)
			if err != nil {
				return fmt.Errorf("parallel run: %w", err)
			}
			costs = append(costs, c)
		}
		r.cost(fmt.Sprintf("one run of %d parallel steps", p.parallel), costs)
	}
	return nil
}

// reportSizes measures what many things cost.
func reportSizes(ctx context.Context, p plan, r report) error {
	many := p.size(100_000)
	measures := []struct {
		name    string
		measure func() error
	}{
		{"boot", func() error {
			took, err := boot(ctx, p, many, many/100)
			r.line(fmt.Sprintf("boot to ready, %d records of which %d stale", many, many/100), "%s", round(took))
			return err
		}},
		{"restart", func() error {
			for _, perRun := range []int{stepsPerRun, 1} {
				ready, first, err := restart(ctx, p, many, min(perRun, many))
				if err != nil {
					return err
				}
				r.line(fmt.Sprintf("restart over %d queued steps, %d a run", many, perRun), "ready %s, first dispatch %s", round(ready), round(first))
			}
			return nil
		}},
		{"drain", func() error {
			for _, classes := range []int{1, 100} {
				for _, steps := range []int{many / 10, many} {
					d, err := drain(ctx, p, steps, min(stepsPerRun, steps), classes)
					if err != nil {
						return err
					}
					r.line(fmt.Sprintf("draining %d queued steps of %d demand classes", steps, classes), "%s a step, %s of swampd's CPU", d.perStep, d.cpu)
				}
			}
			return nil
		}},
		{"burst", func() error {
			var enrolled, first, all []quantiles
			for range p.rounds {
				d, err := drain(ctx, p, stepsPerRun, stepsPerRun, 1)
				if err != nil {
					return err
				}
				enrolled = append(enrolled, quantiles{p50: d.enrolled})
				first, all = append(first, quantiles{p50: d.first}), append(all, quantiles{p50: d.all})
			}
			r.line(fmt.Sprintf("%d waiting, a worker of %d slots enrolls", stepsPerRun, p.slots), "first start %s, all started %s, after %s to connect",
				round(medianQuantiles(first).p50), round(medianQuantiles(all).p50), round(medianQuantiles(enrolled).p50))
			return nil
		}},
		{"queue", func() error {
			for _, perRun := range []int{stepsPerRun, 1} {
				each, after, err := queueMemory(ctx, p, many, min(perRun, many))
				if err != nil {
					return err
				}
				r.line(fmt.Sprintf("memory of a queued step, %d in runs of %d", many, perRun), "%.0f bytes, after a restart %.0f", each, after)
			}
			return nil
		}},
		{"fleet", func() error {
			each, err := fleetMemory(ctx, p, 1000)
			r.line("memory of an idle worker, 1000 connected", "%.0f bytes", each)
			return err
		}},
		{"storm", func() error {
			workers := p.size(5000)
			took, refused, err := storm(ctx, p, workers)
			r.line(fmt.Sprintf("%d workers connect at once", workers), "all enrolled in %s, %d dials told to come later", round(took), refused)
			return err
		}},
		{"leave", func() error {
			ended, unlisted, err := departures(ctx, p, 10*p.rounds)
			r.line("an idle worker, from SIGTERM to its end", "p50 %s, p99 %s", round(ended.p50), round(ended.p99))
			r.line("an idle worker, from SIGTERM until it is not listed", "p50 %s, p99 %s", round(unlisted.p50), round(unlisted.p99))
			return err
		}},
		{"exodus", func() error {
			workers := p.size(1000)
			x, err := drainFleet(ctx, p, workers)
			r.line(fmt.Sprintf("%d workers drain at once", workers), "all announced in %s, gone %s after they closed", round(x.announced), round(x.gone))
			r.line("  the longest worker list meanwhile", "%s", round(x.longest))
			r.line("  a step that another worker matches, before", "p50 %s, p99 %s", round(x.before.p50), round(x.before.p99))
			r.line("  a step that another worker matches, meanwhile", "p50 %s, p99 %s", round(x.during.p50), round(x.during.p99))
			return err
		}},
		{"adopt", func() error {
			for _, workers := range []int{1, 10} {
				first, last, err := adoptions(ctx, p, 1000, workers)
				if err != nil {
					return err
				}
				r.line(fmt.Sprintf("1000 steps on %d workers are in flight again after a kill -9", workers),
					"%s from the first worker's return, %s from the last one's", round(first), round(last))
			}
			return nil
		}},
		{"output", func() error {
			for _, followed := range []bool{false, true} {
				o, err := output(ctx, p, 10*many, followed)
				if err != nil {
					return err
				}
				word := "nobody follows"
				if followed {
					word = "followed"
				}
				r.line(fmt.Sprintf("one step prints %d lines, %s", 10*many, word), "%.0f lines a second, memory +%.1f MiB", o.perSecond, o.grown/(1<<20))
			}
			return nil
		}},
	}
	for _, m := range measures {
		if !p.wants("sizes", m.name) {
			continue
		}
		if err := m.measure(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
