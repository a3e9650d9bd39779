package actors

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// traceMost bounds the moves and the spans of one answer, within a frame.
const traceMost = 4000

// The places of a run's story. A step and a worker have their names besides.
const (
	placeClient    = "client"
	placeRun       = "run"
	placeScheduler = "scheduler"
	placeLeases    = "leases"
)

// Where a span of a run is spent.
const (
	spanRun      = "run"
	spanStep     = "step"
	spanQueue    = "queue"    // in line
	spanHandover = "handover" // from the choice of a worker until it has accepted
	spanWorker   = "worker"   // with the worker
	spanSettle   = "settle"   // from the worker's end until the step's own
)

// actorTrace tells a run's story across the actors and over the wire, from its events and its leases. Nothing is kept for it:
// what has a span has a record.
func (sys *System) actorTrace(ctx context.Context, p *messages.ActorTraceParams) (proto.Message, error) {
	r, err := sys.findRun(p.GetRunId())
	if err != nil {
		return nil, err
	}
	job, step := "", ""
	if p.GetStep() != "" {
		w := &whyRun{sys: sys, ctx: ctx, now: time.Now(), run: r}
		if err := w.read(); err != nil {
			return nil, err
		}
		ordinal, err := w.find(p.GetStep())
		if err != nil {
			return nil, err
		}
		job, step = w.names(ordinal)
	}
	looks, cancel := context.WithTimeout(ctx, looksLimit)
	defer cancel()
	t := &tracer{
		sys: sys, looks: looks, now: time.Now(), run: r, steps: make(map[[2]string]*stepTrace),
		result: &messages.ActorTraceResult{
			RunId: r.GetRunId(), WorkflowName: r.GetWorkflowName(), Status: r.GetStatus(), TraceId: messages.TraceID(r.GetRunId()),
			StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
		},
	}
	var events []*messages.RunEvent
	err = sys.eachEvent(p.GetRunId(), func(e *messages.RunEvent) {
		if step == "" || e.Step == nil || e.GetJob() == job && e.GetStep() == step {
			events = append(events, e)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if err := t.event(e); err != nil {
			return nil, err
		}
	}
	t.close()
	return t.result, ctx.Err()
}

// tracer makes the story out of events.
type tracer struct {
	sys    *System
	looks  context.Context //nolint:containedctx // it lives as long as one answer
	now    time.Time
	run    *messages.RunRecord
	root   *messages.TraceSpan
	steps  map[[2]string]*stepTrace
	order  []*stepTrace
	result *messages.ActorTraceResult
}

// stepTrace is one step on its way.
type stepTrace struct {
	job, name string
	span      *messages.TraceSpan // of the whole step
	open      *messages.TraceSpan // its part that goes on: in line, or with a worker
	dispatch  string
	worker    string
}

func (s *stepTrace) place() string { return "step " + s.job + "/" + s.name }

func workerPlace(name string) string { return "worker " + name }

// move adds something that went from one place to another.
func (t *tracer) move(at *timestamppb.Timestamp, from, to, text string, s *stepTrace) {
	m := &messages.TraceMove{
		At: at, SinceMs: messages.Milliseconds(max(messages.GoTime(at).Sub(messages.GoTime(t.run.GetStartedAt())), 0)), From: from, To: to, Text: text,
	}
	if s != nil {
		m.Job, m.Step, m.DispatchId = &s.job, &s.name, optional(s.dispatch)
	}
	t.result.Moves = append(t.result.Moves, m)
}

// begin adds a span.
func (t *tracer) begin(place, name, id string, parent *messages.TraceSpan, at *timestamppb.Timestamp, s *stepTrace) *messages.TraceSpan {
	span := &messages.TraceSpan{SpanId: messages.SpanID(id), Place: place, Name: name, StartedAt: at}
	if parent != nil {
		span.ParentId = &parent.SpanId
	}
	if s != nil {
		span.Job, span.Step = &s.job, &s.name
	}
	t.result.Spans = append(t.result.Spans, span)
	return span
}

// end ends a span that goes on.
func end(span *messages.TraceSpan, at *timestamppb.Timestamp, status string) {
	if span != nil && span.GetEndedAt() == nil {
		span.EndedAt, span.Status = at, optional(status)
	}
}

// event takes one event of the run.
func (t *tracer) event(e *messages.RunEvent) error {
	id := t.run.GetRunId()
	switch e.GetKind() {
	case messages.EventRunStarted:
		t.root = t.begin(spanRun, "run "+t.run.GetWorkflowName(), id, nil, e.GetAt(), nil)
		t.move(e.GetAt(), placeClient, placeRun, "submits "+t.run.GetWorkflowName(), nil)
		return nil
	case messages.EventRunSucceeded, messages.EventRunFailed, messages.EventRunCancelled:
		end(t.root, e.GetAt(), string(statusOfEnd(e.GetKind())))
		if t.root != nil {
			t.root.Error = e.Error
		}
		t.move(e.GetAt(), placeRun, placeClient, string(statusOfEnd(e.GetKind())), nil)
		return nil
	}
	if e.Step == nil {
		return nil
	}
	key := [2]string{e.GetJob(), e.GetStep()}
	s := t.steps[key]
	if s == nil {
		s = &stepTrace{job: e.GetJob(), name: e.GetStep()}
		s.span = t.begin(spanStep, "step "+s.job+"/"+s.name, id+" "+s.job+"/"+s.name, t.root, e.GetAt(), s)
		t.steps[key], t.order = s, append(t.order, s)
	}
	return t.stepEvent(s, e)
}

// statusOfEnd is the status that an event ends a run with.
func statusOfEnd(kind string) messages.RunStatus {
	switch kind {
	case messages.EventRunSucceeded:
		return messages.RunSucceeded
	case messages.EventRunFailed:
		return messages.RunFailed
	default:
		return messages.RunCancelled
	}
}

func (t *tracer) stepEvent(s *stepTrace, e *messages.RunEvent) error {
	at := e.GetAt()
	if e.GetKind() != messages.EventStepDispatched && messages.EndsDispatch(e.GetKind()) {
		if err := t.dispatchOver(s, at); err != nil {
			return err
		}
	}
	switch e.GetKind() {
	case messages.EventStepStarted:
		t.move(at, placeRun, s.place(), "is ready", s)
	case messages.EventStepQueued:
		end(s.open, at, "")
		s.open = t.begin(spanQueue, "in line: "+e.GetRequirement(), e.GetQueueId(), s.span, at, s)
		t.move(at, s.place(), placeScheduler, "stands in line for "+e.GetRequirement(), s)
	case messages.EventStepDispatched:
		end(s.open, at, "dispatched")
		s.dispatch, s.worker = e.GetDispatchId(), e.GetWorker()
		t.move(at, placeScheduler, s.place(), "gives it to "+s.worker, s)
		t.move(at, s.place(), placeLeases, "makes dispatch "+s.dispatch, s)
		t.move(at, placeLeases, workerPlace(s.worker), "sends it", s)
		s.open = t.begin(spanHandover, "handover to "+s.worker, s.dispatch+" handover", s.span, at, s)
		t.mark(s.open, s, e.Attempt)
	case messages.EventStepWorkerLost:
		t.move(at, placeLeases, s.place(), "worker "+e.GetWorker()+" is lost", s)
	case messages.EventStepRetrying:
		t.move(at, s.place(), s.place(), "tries again", s)
	case messages.EventStepSucceeded, messages.EventStepFailed, messages.EventStepSkipped, messages.EventStepCancelled:
		status := e.GetKind()[len("step_"):]
		end(s.open, at, "")
		s.open = nil
		end(s.span, at, status)
		s.span.Error = e.Error
		text := status
		if e.GetError() != "" {
			text += ": " + shorten(e.GetError(), ranError)
		}
		t.move(at, s.place(), placeRun, text, s)
	}
	return nil
}

func (t *tracer) mark(span *messages.TraceSpan, s *stepTrace, attempt *int32) {
	span.Worker, span.DispatchId, span.Attempt = optional(s.worker), optional(s.dispatch), attempt
}

// dispatchOver adds what the lease of a dispatch knows, now that its step has heard of the end.
func (t *tracer) dispatchOver(s *stepTrace, at *timestamppb.Timestamp) error {
	if s.dispatch == "" {
		return nil
	}
	l, err := t.lease(s.dispatch)
	if err != nil {
		return err
	}
	handover, o := s.open, l.GetOutcome()
	ended := cmp.Or(o.GetEndedAt(), l.GetEndedAt(), at)
	if before(at, ended) { // the step was ended first, as by a forced cancel
		ended = at
	}
	switch {
	case l.GetState() == string(messages.LeaseRefused):
		end(handover, ended, "refused")
		t.move(ended, workerPlace(s.worker), placeLeases, "refuses: "+cmp.Or(o.GetCode(), "no reason"), s)
	case o.GetStartedAt() == nil:
		end(handover, ended, o.GetStatus())
		t.move(ended, placeLeases, s.place(), "ends it: "+cmp.Or(o.GetStatus(), "unknown"), s)
	default:
		run := t.accepted(s, o.GetStartedAt())
		end(run, ended, o.GetStatus())
		run.Error = optional(shorten(o.GetError(), ranError))
		from := workerPlace(s.worker)
		if o.GetStatus() == outcomeLost || o.GetStatus() == outcomeRestart {
			from = placeLeases
		}
		t.move(ended, from, placeLeases, "result: "+o.GetStatus(), s)
		settle := t.begin(spanSettle, "settle", s.dispatch+" settle", s.span, ended, s)
		end(settle, at, "")
		t.move(at, placeLeases, s.place(), "tells the end", s)
	}
	s.dispatch, s.open = "", nil
	return nil
}

// accepted ends the handover of a dispatch and begins its time with the worker, whose span is the one that the step's own
// are below.
func (t *tracer) accepted(s *stepTrace, at *timestamppb.Timestamp) *messages.TraceSpan {
	if s.open != nil && before(at, s.open.GetStartedAt()) {
		at = s.open.GetStartedAt()
	}
	var attempt *int32
	if s.open != nil {
		attempt = s.open.Attempt
	}
	end(s.open, at, "accepted")
	t.move(at, workerPlace(s.worker), placeLeases, "accepts", s)
	run := t.begin(spanWorker, "on "+s.worker, s.dispatch, s.span, at, s)
	t.mark(run, s, attempt)
	return run
}

func before(a, b *timestamppb.Timestamp) bool { return messages.GoTime(a).Before(messages.GoTime(b)) }

// lease is the last generation of a dispatch's lease, as the journal has it; an empty one where it has none any more.
func (t *tracer) lease(dispatch string) (*messages.LeaseRecord, error) {
	last := &messages.LeaseRecord{}
	for generation := uint32(1); ; generation++ {
		rec, err := t.sys.journal.Get(persistence.KindLease, leaseID(dispatch, generation))
		if errors.Is(err, persistence.ErrNotFound) {
			return last, nil
		}
		if err != nil {
			return nil, err
		}
		l := &messages.LeaseRecord{}
		if err := proto.Unmarshal(rec.Body, l); err != nil {
			return nil, err
		}
		if first := last.GetOutcome().GetStartedAt(); first != nil && l.GetOutcome() != nil && before(first, l.GetOutcome().GetStartedAt()) {
			l.Outcome.StartedAt = first // it was adopted: the same process went on
		}
		last = l
	}
}

// close adds what goes on now, puts all into order and counts the time in each place.
func (t *tracer) close() {
	for _, s := range t.order {
		if s.dispatch == "" {
			continue
		}
		l, err := t.lease(s.dispatch)
		if err != nil || l.GetDispatchId() == "" {
			continue
		}
		in, err := t.sys.lookAt(t.looks, leaseAddress(leaseID(s.dispatch, l.GetGeneration())))
		if err != nil || in.view.lease == nil {
			continue
		}
		if v := in.view.lease; v.accepted && !v.acceptedAt.IsZero() {
			s.open = t.accepted(s, messages.Time(v.acceptedAt))
		}
		if lost := in.view.lease.lostAt; !lost.IsZero() {
			t.move(messages.Time(lost), workerPlace(s.worker), placeLeases, "is disconnected, with "+spoken(max(in.view.lease.graceLeft, 0))+" left to come back", s)
		}
	}
	slices.SortStableFunc(t.result.Moves, func(a, b *messages.TraceMove) int {
		return messages.GoTime(a.GetAt()).Compare(messages.GoTime(b.GetAt()))
	})
	places := make(map[string]*messages.TracePlace)
	for _, place := range []string{spanQueue, spanHandover, spanWorker, spanSettle} {
		places[place] = &messages.TracePlace{Place: place}
		t.result.Places = append(t.result.Places, places[place])
	}
	for _, span := range t.result.GetSpans() {
		to := messages.GoTime(span.GetEndedAt())
		if to.IsZero() {
			to = t.now
		}
		span.TookMs = messages.Milliseconds(max(to.Sub(messages.GoTime(span.GetStartedAt())), 0))
		if p := places[span.GetPlace()]; p != nil {
			p.Count++
			p.TookMs += span.GetTookMs()
		}
	}
	for _, over := range []int{len(t.result.Moves) - traceMost, len(t.result.Spans) - traceMost} {
		t.result.LeftOut += int32(max(over, 0))
	}
	t.result.Moves = t.result.Moves[:min(len(t.result.Moves), traceMost)]
	t.result.Spans = t.result.Spans[:min(len(t.result.Spans), traceMost)]
}
