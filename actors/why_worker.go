package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// holder is who has a dispatch. How long its worker may still stay away is the lease's to say; an error that is errStuck says
// that it does not, and comes with what is known without it.
func (sys *System) holder(ctx context.Context, l *messages.LeaseRecord) (*messages.WhyHolder, error) {
	id := leaseID(l.GetDispatchId(), l.GetGeneration())
	h := &messages.WhyHolder{
		Worker: l.GetWorker(), DispatchId: l.GetDispatchId(), Lease: id, Since: l.GetCreatedAt(),
		RunId: optional(l.GetRunId()), Job: optional(l.GetJob()), Step: optional(l.GetStep()),
	}
	w := &messages.WorkerRecord{}
	if _, err := sys.read(persistence.KindWorker, l.GetWorker(), w); err != nil {
		return nil, err
	}
	h.Connected = w.GetConnected()
	if !h.Connected {
		h.DisconnectedAt = w.GetDisconnectedAt()
	}
	in, err := sys.lookAt(ctx, leaseAddress(id))
	if errors.Is(err, errStuck) {
		return h, errStuck
	}
	if err == nil && in.view.lease != nil {
		h.Accepted = in.view.lease.accepted
		if lost := in.view.lease.lostAt; !lost.IsZero() {
			left := messages.Milliseconds(max(in.view.lease.graceLeft, 0))
			h.GraceLeftMs, h.DisconnectedAt = &left, messages.Time(lost)
		}
	}
	return h, nil
}

// whyWorker explains what a worker does, or why it has nothing to do.
func (sys *System) whyWorker(ctx context.Context, name string, ofStep bool) (proto.Message, error) {
	if ofStep {
		run, _, _ := strings.Cut(name, "/")
		return nil, messages.Faultf(messages.CodeNotFound, "no run %s", run)
	}
	rec := &messages.WorkerRecord{}
	if version, err := sys.read(persistence.KindWorker, name, rec); err != nil {
		return nil, err
	} else if version == 0 {
		near, err := sys.nearestWorkers(name)
		if err != nil {
			return nil, err
		}
		return nil, messages.Faultf(messages.CodeNotFound, "no run and no worker %s%s", name, nearestOf(name, near))
	}
	_, leases, err := sys.worker(name)
	if err != nil {
		return nil, err
	}
	w := workerWhy{now: time.Now(), rec: rec}
	got, err := sys.askScheduler(ctx, func(a *answer) any { return askWorker{name, a} })
	switch {
	case errors.Is(err, errStuck):
		w.silent = true
	case err != nil:
		return nil, err
	default:
		w.standing = got.(workerStanding)
	}
	item := itemOf(rec, leases)
	w.out = &messages.WhyWorker{Name: name, Status: item.GetStatus(), Reason: item.Reason, Taken: int32(len(leases)), Capacity: rec.GetCapacity()}
	looks, cancel := context.WithTimeout(ctx, looksLimit)
	defer cancel()
	for _, l := range leases {
		h, err := sys.holder(looks, l)
		if err != nil && !errors.Is(err, errStuck) {
			return nil, err
		}
		w.out.Holds = append(w.out.Holds, h)
	}
	w.explain()
	return &messages.WhyResult{Kind: kindWorker, Subject: name, Status: item.GetStatus(), Text: w.text.String(), Worker: w.out}, nil
}

// workerWhy puts the paragraph of a worker together.
type workerWhy struct {
	now      time.Time
	rec      *messages.WorkerRecord
	standing workerStanding
	silent   bool // the scheduler does not answer
	out      *messages.WhyWorker
	text     sentences
}

func (w *workerWhy) explain() {
	w.state()
	w.holds()
	if w.silent {
		w.text.add("%s.", strings.ToUpper(stuckScheduler[:1])+stuckScheduler[1:])
		return
	}
	st := w.standing
	if st.known {
		w.out.But = optional(st.but.text(verdict{status: messages.WorkerStatus(w.out.GetStatus()), taken: st.taken, capacity: st.capacity}))
	}
	var lacking []string
	others := 0
	for _, c := range st.classes {
		w.out.Classes = append(w.out.Classes, &messages.WhyClass{Requirement: c.requirement, Waiting: int32(c.waiting), Lacks: c.lacks})
		if len(c.lacks) == 0 && st.known {
			w.out.Fitting += int32(c.waiting)
			continue
		}
		others += c.waiting
		if len(lacking) < nearTold {
			lacking = append(lacking, fmt.Sprintf("%d for %s, but it %s", c.waiting, c.requirement, strings.Join(c.lacks, " and ")))
		}
	}
	fitting := int(w.out.GetFitting())
	free := st.known && st.but == noObstacle
	switch {
	case len(st.classes) == 0:
		w.text.add("No step waits in line.")
	case fitting > 0 && free:
		w.text.add("%s that it may serve, and is about to be given.", someOf(fitting, fitting+others))
	case fitting > 0:
		w.text.add("%s that it could serve.", someOf(fitting, fitting+others))
	case st.known:
		w.text.add("%s in line, none for this worker: %s.", stepsWait(others), strings.Join(lacking, "; "))
	default:
		w.text.add("%s in line.", stepsWait(others))
	}
}

func stepsWait(n int) string {
	if n == 1 {
		return "1 step waits"
	}
	return fmt.Sprintf("%d steps wait", n)
}

// someOf counts the steps that wait, and those of them that matter.
func someOf(n, all int) string {
	if n == all {
		return stepsWait(n)
	}
	return fmt.Sprintf("%s in line, %d of them such", stepsWait(all), n)
}

// state says what the worker is, since when and what would change it.
func (w *workerWhy) state() {
	r, name := w.rec, "Worker "+w.rec.GetName()
	reason := ""
	if text := intentReason(r, w.now); text != "" {
		reason = ", " + text
	}
	intentAt := messages.GoTime(r.GetIntentAt())
	switch messages.WorkerStatus(w.out.GetStatus()) {
	case messages.WorkerDisconnected:
		w.out.Since = r.GetDisconnectedAt()
		w.text.add("%s is disconnected, for %s now%s: it gets nothing until it connects again.", name, ago(w.now, messages.GoTime(r.GetDisconnectedAt())), reason)
	case messages.WorkerDraining:
		w.out.Since = r.GetIntentAt()
		w.text.add("%s drains, for %s now%s: it gets nothing new, and leaves when it has ended what it runs.", name, ago(w.now, intentAt), reason)
		if r.GetDrainOrdered() {
			w.text.add("swamp worker resume %s takes that back.", r.GetName())
		}
	case messages.WorkerPaused:
		w.out.Since = r.GetIntentAt()
		w.text.add("%s is paused, for %s now%s: it gets nothing new until swamp worker resume %s, or the end of the pause.", name, ago(w.now, intentAt), reason, r.GetName())
	case messages.WorkerUnhealthy:
		w.text.add("%s is unhealthy%s: it could not start %d steps in a row, and gets nothing until its probation is over.", name, reason, cannotStartLimit)
	case messages.WorkerUnverified:
		w.text.add("%s is not verified yet%s: it gets nothing before it has passed its probe.", name, reason)
	default:
		w.out.Since = r.GetEnrolledAt()
		w.text.add("%s is connected, for %s now, and %s.", name, ago(w.now, messages.GoTime(r.GetEnrolledAt())), w.slots())
		switch {
		case w.silent:
		case !w.standing.known:
			w.text.add("The scheduler has not heard of it yet.")
		case w.standing.but == obstacleRefusal:
			w.text.add("It has refused a step, so it gets nothing for %s more, unless it says that it has room.", spoken(w.standing.refusedUntil.Sub(w.now)))
		case w.standing.but == obstacleStale:
			w.text.add("It has just changed, and the scheduler has not heard of that yet.")
		case w.standing.but == obstacleClosed:
			w.text.add("The orchestrator stops, and hands nothing out.")
		}
	}
}

func (w *workerWhy) slots() string {
	taken, capacity := max(w.standing.taken, int(w.out.GetTaken())), int(w.rec.GetCapacity())
	switch {
	case taken == 0:
		return fmt.Sprintf("idle: all of its slots (%d) are free", capacity)
	case taken >= capacity:
		return fmt.Sprintf("busy: all of its slots (%d) are taken", capacity)
	default:
		return fmt.Sprintf("busy: %d of its %d slots are taken", taken, capacity)
	}
}

func (w *workerWhy) holds() {
	var told []string
	slices.SortStableFunc(w.out.GetHolds(), func(a, b *messages.WhyHolder) int {
		return cmp.Compare(messages.GoTime(a.GetSince()).UnixNano(), messages.GoTime(b.GetSince()).UnixNano())
	})
	for _, h := range w.out.GetHolds() {
		if len(told) == nearTold {
			told = append(told, fmt.Sprintf("%d more", len(w.out.GetHolds())-nearTold))
			break
		}
		text := fmt.Sprintf("%s/%s of run %s for %s", h.GetJob(), h.GetStep(), h.GetRunId(), ago(w.now, messages.GoTime(h.GetSince())))
		if h.GraceLeftMs != nil {
			text += fmt.Sprintf(" (lost in %s, unless it comes back)", spoken(messages.Duration(h.GetGraceLeftMs())))
		}
		told = append(told, text)
	}
	if len(told) > 0 {
		w.text.add("It has %s.", andAll(told))
	}
}
