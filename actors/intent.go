package actors

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// goneAgain is how often a client that waits for a worker to leave asks again, in case its question was lost.
const goneAgain = 5 * time.Second

func (sys *System) workerDrain(ctx context.Context, p *messages.WorkerDrainParams) (proto.Message, error) {
	if err := sys.wish(ctx, p.GetName(), func(a *answer) any { return drainWorker{a} }); err != nil {
		return nil, err
	}
	if p.GetWait() {
		if err := sys.awaitGone(ctx, p.GetName()); err != nil {
			return nil, err
		}
	}
	return sys.workerItem(p.GetName())
}

// awaitGone returns when a worker has left, or is to stay after all.
func (sys *System) awaitGone(ctx context.Context, name string) error {
	a := newAnswer()
	again := time.NewTicker(goneAgain)
	defer again.Stop()
	for {
		sys.tell(workerAddress(name), awaitGone{a})
		select {
		case got := <-a.ch:
			return got.err
		case <-again.C:
		case <-sys.failed:
			return messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (sys *System) workerPause(ctx context.Context, p *messages.WorkerPauseParams) (proto.Message, error) {
	length := messages.Duration(p.GetForMs())
	switch {
	case length < 0:
		return nil, messages.Faultf(messages.CodeInvalid, "a pause is longer than nothing")
	case p.GetNote() != "" && !short(p.GetNote(), 255):
		return nil, messages.Faultf(messages.CodeInvalid, "a note is printable text of at most 255 bytes")
	}
	if err := sys.wish(ctx, p.GetName(), func(a *answer) any { return pauseWorker{p.GetNote(), length, a} }); err != nil {
		return nil, err
	}
	return sys.workerItem(p.GetName())
}

func (sys *System) workerResume(ctx context.Context, p *messages.WorkerResumeParams) (proto.Message, error) {
	if err := sys.wish(ctx, p.GetName(), func(a *answer) any { return resumeWork{a} }); err != nil {
		return nil, err
	}
	return sys.workerItem(p.GetName())
}

// wish puts a client's wish to a worker. For a name that nobody has the answer names the nearest.
func (sys *System) wish(ctx context.Context, name string, question func(*answer) any) error {
	if err := checkWorkerName(name); err != nil {
		return err
	}
	version, err := sys.read(persistence.KindWorker, name, &messages.WorkerRecord{})
	if err != nil {
		return err
	}
	if version == 0 { // a name that nobody has gets no actor
		return sys.noWorker(name)
	}
	_, err = sys.ask(ctx, workerAddress(name), question)
	if err != nil && messages.CodeOf(err) == messages.CodeNotFound { // it was removed meanwhile
		return sys.noWorker(name)
	}
	return err
}

// checkWorkerName refuses what is no name before it is looked for.
func checkWorkerName(name string) error {
	if name == "" || len(name) > 128 {
		return messages.Faultf(messages.CodeInvalid, "a worker's name is needed")
	}
	return nil
}

// noWorker says that there is no worker of that name, and which are most like it.
func (sys *System) noWorker(name string) error {
	near, err := sys.nearestWorkers(name)
	if err != nil {
		return err
	}
	if len(near) == 0 {
		return messages.Faultf(messages.CodeNotFound, "no worker %s", name)
	}
	return messages.Faultf(messages.CodeNotFound, "no worker %s: the nearest are %s", name, strings.Join(near, ", "))
}

// nearestWorkers are up to three names that are most like the given one.
func (sys *System) nearestWorkers(name string) ([]string, error) {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	err := sys.journal.Scan(persistence.KindWorker, false, "", "", func(rec persistence.Record) bool {
		if rec.ID != Loopback {
			all = append(all, candidate{rec.ID, distance(name, rec.ID)})
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b candidate) int { return a.distance - b.distance })
	var names []string
	for _, c := range all[:min(len(all), 3)] {
		names = append(names, c.name)
	}
	return names, err
}

// distance is how many characters have to be changed, added or dropped to make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
