package actors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Times of the auditor.
const (
	auditEvery = 30 * time.Second
	// auditAgain is how long after a first look a second one confirms what it found: longer than the pauses after which an
	// actor repeats what it owes.
	auditAgain = 10 * time.Second
	// auditShare is how much longer than a look the time between two is, at least.
	auditShare = 100
	// aliveEvery is how often the journal notes that the orchestrator lives, while something waits or runs. At a restart a
	// wait counts up to then.
	aliveEvery = 10 * time.Second
	// fullFor is how long a commit that was refused for want of space says that there is none: whoever waits for space tries
	// again within that.
	fullFor = 5 * spaceTime
)

const aliveID = "alive"

// Finding is one place where the books disagree.
type Finding struct{ Kind, ID, Text string }

// Audit compares the journal with what the actors believe (rule P12), and returns where they disagree now. A system at
// work shows changes half done: what two audits some time apart agree on is a fault.
func (sys *System) Audit(ctx context.Context) ([]Finding, error) {
	b, err := sys.readBooks(ctx)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, f := range audit(b) {
		findings = append(findings, Finding{f.kind, f.id, f.text})
	}
	return findings, nil
}

// auditor looks at the books every half minute, or less often where they are so large that it would be felt. What it finds
// twice it counts, says, and asks the actor to settle. It is a net, not a mechanism: in a system without faults it finds
// nothing.
func (sys *System) auditor() {
	look := time.NewTimer(sys.cfg.AuditEvery)
	defer look.Stop()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-look.C:
			begin := time.Now()
			if err := sys.auditOnce(); err != nil && sys.edges.ctx.Err() == nil {
				sys.log.Warn("books not audited", slog.Any(messages.KeyErr, err))
			}
			look.Reset(max(sys.cfg.AuditEvery, auditShare*time.Since(begin)))
		case <-alive.C:
			if err := sys.noteAlive(); err != nil && sys.edges.ctx.Err() == nil {
				sys.log.Warn("time of life not noted", slog.Any(messages.KeyErr, err))
			}
		case <-sys.edges.ctx.Done():
			return
		}
	}
}

func (sys *System) auditOnce() error {
	ctx := sys.edges.ctx
	first, err := sys.readBooks(ctx)
	if err != nil {
		return err
	}
	suspects := make(map[string]bool)
	for _, f := range audit(first) {
		suspects[f.key()] = true
	}
	if len(suspects) == 0 {
		return nil
	}
	select {
	case <-time.After(auditAgain):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	second, err := sys.readBooks(ctx)
	if err != nil {
		return err
	}
	if !sys.Ready() { // it stops: what waits is not handed out any more
		return nil
	}
	for _, f := range audit(second) {
		if !suspects[f.key()] {
			continue
		}
		sys.counters.findings.Add(1)
		sys.log.Error("the books disagree", slog.String(messages.KeyKind, f.kind), slog.String(messages.KeyPID, f.id), slog.String(messages.KeyReason, f.text))
		sys.tell(f.at, settleAgain{})
	}
	return nil
}

// settleAgain makes an actor look anew at what it owes.
type settleAgain struct{}

// noteAlive writes the time, while a wait could need it.
func (sys *System) noteAlive() error {
	if sys.counters.runsLive.Load() == 0 {
		return nil
	}
	version, err := sys.read(persistence.KindScheduler, aliveID, &messages.SchedulerRecord{})
	if err != nil {
		return err
	}
	err = sys.commit(decision{writes: []write{{kind: kindScheduler, id: aliveID, replaces: version, state: "alive", body: &messages.SchedulerRecord{Epoch: sys.journal.Epoch()}}}})
	if err != nil {
		sys.distrust(err)
		return fmt.Errorf("write time of life: %w", err)
	}
	return nil
}

// doctorBooks audits twice, a moment apart, and shows what stands.
func (sys *System) doctorBooks(ctx context.Context) (proto.Message, error) {
	const pause = 2 * time.Second
	first, err := sys.Audit(ctx)
	if err != nil {
		return nil, err
	}
	result := &messages.DoctorBooksResult{}
	if len(first) == 0 {
		return result, nil
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	second, err := sys.Audit(ctx)
	if err != nil {
		return nil, err
	}
	before := make(map[Finding]bool, len(first))
	for _, f := range first {
		before[f] = true
	}
	for _, f := range second {
		if before[f] {
			result.Items = append(result.Items, &messages.BookFinding{Kind: f.Kind, Id: f.ID, Text: f.Text})
		}
	}
	result.Count = int32(len(result.Items))
	return result, nil
}
