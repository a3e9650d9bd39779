package testkit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// Run is a run that the test has submitted and follows, across crashes of the orchestrator too.
type Run struct {
	// ID is the run's.
	ID string

	f    *Fleet
	news bell

	mu      sync.Mutex
	events  []*messages.RunEvent
	taken   []bool // by WaitEvent
	seq     uint32
	cursors map[string]uint32
	status  messages.RunStatus // once it has ended
	lost    error              // why it is followed no more
}

// Submit submits a workflow and follows the run. It fails the test where the workflow is not accepted.
func (f *Fleet) Submit(yaml string) *Run {
	f.t.Helper()
	run, err := f.SubmitAs(fmt.Sprintf("run-%04d", f.number("run")), yaml)
	if err != nil {
		f.t.Fatalf("testkit: submit: %v", err)
	}
	return run
}

// SubmitAs submits a workflow under a run id, and follows the run. Errors are *messages.Fault.
func (f *Fleet) SubmitAs(id, yaml string) (*Run, error) {
	ctx, cancel := f.patience()
	defer cancel()
	_, err := f.insist(ctx, messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: id, File: "test.yaml", Source: yaml})
	if err != nil {
		return nil, err
	}
	return f.Follow(id), nil
}

// Follow follows a run that exists.
func (f *Fleet) Follow(id string) *Run {
	r := &Run{ID: id, f: f, cursors: make(map[string]uint32)}
	f.mu.Lock()
	f.runs = append(f.runs, r)
	f.mu.Unlock()
	f.run(r.follow)
	return r
}

// rewind forgets what was told of the run, and follows it from its beginning: the journal may have lost some of it. The
// orchestrator is down.
func (r *Run) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := r.status != "" || r.lost != nil
	r.events, r.taken, r.seq, r.cursors, r.status, r.lost = nil, nil, 0, make(map[string]uint32), "", nil
	if again {
		r.f.run(r.follow)
	}
}

// follow watches the run, and goes on where it was after the orchestrator has come back.
func (r *Run) follow() {
	for {
		system, err := r.f.up(r.f.ctx)
		if err != nil {
			r.lose(err)
			return
		}
		err = r.watch(system)
		if err == nil {
			return
		}
		if r.f.ctx.Err() != nil || !gone(err) || !r.f.sleep(askAgain) {
			r.lose(err)
			return
		}
	}
}

func (r *Run) watch(system *actors.System) error {
	r.mu.Lock()
	p := &messages.RunWatchParams{RunId: r.ID, AfterSeq: r.seq}
	for dispatch, offset := range r.cursors {
		p.Output = append(p.Output, &messages.OutputCursor{DispatchId: dispatch, Offset: offset})
	}
	r.mu.Unlock()
	_, err := system.Do(r.f.ctx, messages.VerbRunWatch, p, func(e *messages.Event) error {
		r.take(e.GetRun())
		return nil
	})
	return err
}

func (r *Run) lose(err error) {
	r.mu.Lock()
	r.lost = err
	r.mu.Unlock()
	r.news.ring()
}

// take notes an event. The numbers of a stream rise by one, and the output of a dispatch only goes on.
func (r *Run) take(e *messages.RunEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.news.ring()
	if e.GetKind() == messages.EventStepOutput {
		if e.GetSeq() != r.seq {
			r.f.t.Errorf("testkit: %s: output follows event %d and says %d", r.ID, r.seq, e.GetSeq())
		}
		if last := r.cursors[e.GetDispatchId()]; e.GetOffset() <= last {
			r.f.t.Errorf("testkit: %s: output of dispatch %s goes from offset %d to %d", r.ID, e.GetDispatchId(), last, e.GetOffset())
		}
		r.cursors[e.GetDispatchId()] = e.GetOffset()
	} else {
		if e.GetSeq() != r.seq+1 {
			r.f.t.Errorf("testkit: %s: event %d follows event %d", r.ID, e.GetSeq(), r.seq)
		}
		r.seq = e.GetSeq()
	}
	r.events = append(r.events, e)
	r.taken = append(r.taken, false)
	if messages.EndsRun(e.GetKind()) {
		r.status = map[string]messages.RunStatus{
			messages.EventRunSucceeded: messages.RunSucceeded, messages.EventRunFailed: messages.RunFailed,
			messages.EventRunCancelled: messages.RunCancelled,
		}[e.GetKind()]
	}
}

// Events are all events so far, output too, in their order.
func (r *Run) Events() []*messages.RunEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Kinds are the kinds of the events so far that have these fields, in their order; output apart.
func (r *Run) Kinds(fields ...string) []string {
	var kinds []string
	for _, e := range r.Events() {
		if e.GetKind() != messages.EventStepOutput && hasFields(e, fields) {
			kinds = append(kinds, e.GetKind())
		}
	}
	return kinds
}

// Lines is what a step has printed so far, in all its dispatches.
func (r *Run) Lines(step string) []string {
	var lines []string
	for _, e := range r.Events() {
		if e.GetKind() == messages.EventStepOutput && e.GetStep() == step {
			lines = append(lines, e.GetLine())
		}
	}
	return lines
}

// WaitEvent waits for the first event of that kind that it has not returned before and that has all the fields, each as
// name=value: "step=build", "worker=w1".
func (r *Run) WaitEvent(kind string, fields ...string) *messages.RunEvent {
	r.f.t.Helper()
	ctx, cancel := r.f.patience()
	defer cancel()
	var found *messages.RunEvent
	r.news.wait(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, e := range r.events {
			if !r.taken[i] && e.GetKind() == kind && hasFields(e, fields) {
				r.taken[i], found = true, e
				return true
			}
		}
		return r.status != "" || r.lost != nil
	})
	if found == nil {
		r.f.t.Fatalf("testkit: %s: no event %s %s", r.ID, kind, strings.Join(fields, " "))
	}
	return found
}

// Wait waits for the end of the run and returns its status.
func (r *Run) Wait() messages.RunStatus {
	r.f.t.Helper()
	ctx, cancel := r.f.patience()
	defer cancel()
	var status messages.RunStatus
	var lost error
	r.news.wait(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		status, lost = r.status, r.lost
		return status != "" || lost != nil
	})
	if status == "" {
		r.f.t.Fatalf("testkit: %s has not ended: %v", r.ID, lost)
	}
	return status
}

// WaitStatus waits for the end of the run, and fails the test if that is another one.
func (r *Run) WaitStatus(want messages.RunStatus) {
	r.f.t.Helper()
	if got := r.Wait(); got != want {
		r.f.t.Fatalf("testkit: %s ended as %s, want %s", r.ID, got, want)
	}
}

// Step is a step as run.show has it.
func (r *Run) Step(name string) *messages.StepItem {
	r.f.t.Helper()
	for _, j := range r.f.Show(r.ID).GetJobs() {
		for _, s := range j.GetSteps() {
			if s.GetName() == name {
				return s
			}
		}
	}
	r.f.t.Fatalf("testkit: %s has no step %s", r.ID, name)
	return nil
}

// Cancel asks for the end of the run.
func (r *Run) Cancel() { r.f.t.Helper(); r.cancel("", false) }

// CancelStep asks for the end of one step.
func (r *Run) CancelStep(step string) { r.f.t.Helper(); r.cancel(step, false) }

// Kill asks for the end of the run without a chance to clean up.
func (r *Run) Kill() { r.f.t.Helper(); r.cancel("", true) }

func (r *Run) cancel(step string, force bool) {
	r.f.t.Helper()
	ask[*messages.RunCancelResult](r.f, messages.VerbRunCancel, &messages.RunCancelParams{RunId: r.ID, Step: step, Force: force, By: "test"})
}

// Watch follows the run from the start with a watch of its own, after an event and with cursors for output, until it
// returns false or the run has ended.
func (r *Run) Watch(ctx context.Context, after uint32, cursors map[string]uint32, fn func(*messages.RunEvent) bool) error {
	p := &messages.RunWatchParams{RunId: r.ID, AfterSeq: after}
	for dispatch, offset := range cursors {
		p.Output = append(p.Output, &messages.OutputCursor{DispatchId: dispatch, Offset: offset})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := false
	_, err := r.f.Do(ctx, messages.VerbRunWatch, p, func(e *messages.Event) error {
		if !enough && !fn(e.GetRun()) {
			enough = true
			cancel()
		}
		return ctx.Err()
	})
	if enough {
		return nil
	}
	return err
}

// String is the run's story, an event a line.
func (r *Run) String() string {
	var b strings.Builder
	events := r.Events()
	for _, e := range events {
		fmt.Fprintf(&b, "%s %4d %s", messages.GoTime(e.GetAt()).Format(time.TimeOnly+".000"), e.GetSeq(), e.GetKind())
		for _, name := range []string{"job", "step", "worker", "dispatchId", "queueId", "requirement", "why", "line", "error", "code"} {
			if v, ok := fieldOf(e, name); ok {
				fmt.Fprintf(&b, " %s=%q", name, v)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func hasFields(e *messages.RunEvent, fields []string) bool {
	for _, field := range fields {
		name, want, _ := strings.Cut(field, "=")
		if have, ok := fieldOf(e, name); !ok || have != want {
			return false
		}
	}
	return true
}

// fieldOf reads a field of an event by its JSON name.
func fieldOf(e *messages.RunEvent, name string) (string, bool) {
	number := func(n uint32) *string { s := strconv.FormatUint(uint64(n), 10); return &s }
	var v *string
	switch name {
	case "job":
		v = e.Job
	case "step":
		v = e.Step
	case "requirement":
		v = e.Requirement
	case "why":
		v = e.Why
	case "queueId":
		v = e.QueueId
	case "worker":
		v = e.Worker
	case "dispatchId":
		v = e.DispatchId
	case "stream":
		v = e.Stream
	case "line":
		v = e.Line
	case "error":
		v = e.Error
	case "code":
		v = e.Code
	case "workflowName":
		v = e.WorkflowName
	case "seq":
		v = number(e.GetSeq())
	case "attempt":
		if e.Attempt != nil {
			v = number(uint32(e.GetAttempt()))
		}
	}
	if v == nil {
		return "", false
	}
	return *v, true
}

// Executions is how many dispatches of a step the workers have accepted.
func (f *Fleet) Executions(run *Run, step string) int {
	f.mu.Lock()
	workers := f.workers
	f.mu.Unlock()
	n := 0
	for _, w := range workers {
		for _, d := range w.Dispatches() {
			w.mu.Lock()
			if d.Params.GetRunId() == run.ID && d.Step() == step && d.accepted() {
				n++
			}
			w.mu.Unlock()
		}
	}
	return n
}
