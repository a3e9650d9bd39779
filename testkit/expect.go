package testkit

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

// verdict is what came of looking whether an expectation holds.
type verdict struct {
	holds bool
	// over: it will never hold, however long one waits.
	over bool
	// instead is what is the case, for the sentence "expected …, but …".
	instead string
}

// expect waits until an expectation holds, and fails the test with a sentence where it does not.
func (f *Fleet) expect(sentence string, look func() verdict) {
	f.t.Helper()
	deadline := time.Now().Add(f.settings.patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if f.bubble {
			synctest.Wait()
		}
		v := look()
		switch {
		case v.holds:
			return
		case v.over:
			f.t.Fatalf("testkit: expected %s, but %s", sentence, v.instead)
		case time.Now().After(deadline):
			f.t.Fatalf("testkit: expected %s within %s, but %s", sentence, f.settings.patience, v.instead)
		}
		time.Sleep(wait)
	}
}

// StepExpectation is what a test expects of a step. Each of its methods waits until it is so, and fails the test with a
// sentence as soon as it cannot become so any more, or after the test's patience.
type StepExpectation struct {
	r    *Run
	step string // name, or job/name
}

// Expect says what is to become of a step, which is named by its name, or by job/name where several jobs have it.
//
//	run.Expect("fit").WaitsFor("labels gpu=true")
//	run.Expect("fit").RunsOn("gpu-1")
//	run.Expect("fit").Succeeds()
func (r *Run) Expect(step string) *StepExpectation { return &StepExpectation{r, step} }

// item is the step as run.show has it.
func (e *StepExpectation) item() *messages.StepItem {
	e.r.f.t.Helper()
	job, name, ok := strings.Cut(e.step, "/")
	if !ok {
		job, name = "", e.step
	}
	for _, j := range e.r.f.Show(e.r.ID).GetJobs() {
		for _, s := range j.GetSteps() {
			if s.GetName() == name && (job == "" || j.GetName() == job) {
				return s
			}
		}
	}
	e.r.f.t.Fatalf("testkit: %s has no step %s", e.r.ID, e.step)
	return nil
}

func (e *StepExpectation) expect(what string, look func(*messages.StepItem) verdict) *StepExpectation {
	e.r.f.t.Helper()
	e.r.f.expect(fmt.Sprintf("step %s of %s %s", e.step, e.r.ID, what), func() verdict {
		e.r.f.t.Helper()
		s := e.item()
		v := look(s)
		if v.instead == "" {
			v.instead = e.is(s)
		}
		return v
	})
	return e
}

// is says in words how the step is.
func (e *StepExpectation) is(s *messages.StepItem) string {
	text := "it is " + s.GetStatus()
	switch messages.StepStatus(s.GetStatus()) {
	case messages.StepQueued:
		if q := e.last(messages.EventStepQueued); q != nil {
			text += ": " + q.GetWhy()
		}
	case messages.StepRunning:
		text += " on " + s.GetWorker()
	case messages.StepFailed:
		text += fmt.Sprintf(": %s (%s)", s.GetError(), s.GetCode())
	default:
	}
	return text
}

// last is the last event of a kind that is about the step, nil where there is none.
func (e *StepExpectation) last(kind string) *messages.RunEvent {
	events := e.events(kind)
	if len(events) == 0 {
		return nil
	}
	return events[len(events)-1]
}

// events are those of a kind that are about the step.
func (e *StepExpectation) events(kind string) []*messages.RunEvent {
	return slices.DeleteFunc(e.r.Events(), func(x *messages.RunEvent) bool {
		return x.GetKind() != kind || x.GetStep() != e.step && x.GetJob()+"/"+x.GetStep() != e.step
	})
}

func ended(s *messages.StepItem) bool { return messages.StepStatus(s.GetStatus()).Ended() }

// WaitsFor expects the step to wait in the queue for what the requirement says, such as "labels gpu=true".
func (e *StepExpectation) WaitsFor(requirement string) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect("to wait for "+requirement, func(s *messages.StepItem) verdict {
		q := e.last(messages.EventStepQueued)
		waits := s.GetStatus() == string(messages.StepQueued)
		if waits && q != nil && q.GetRequirement() != requirement {
			return verdict{over: true, instead: "it waits for " + q.GetRequirement()}
		}
		return verdict{holds: waits && q != nil, over: ended(s)}
	})
}

// WaitsBecause expects the step to wait in the queue, with a reason that holds the text.
func (e *StepExpectation) WaitsBecause(text string) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect("to wait because "+text, func(s *messages.StepItem) verdict {
		why := ""
		for _, q := range e.r.f.Queue() {
			if q.GetRunId() == e.r.ID && (q.GetStepName() == e.step || q.GetJobName()+"/"+q.GetStepName() == e.step) {
				why = q.GetWhy()
			}
		}
		v := verdict{holds: strings.Contains(why, text), over: ended(s)}
		if why != "" {
			v.instead = "it waits, and why is: " + why
		}
		return v
	})
}

// RunsOn expects the step to run on that worker.
func (e *StepExpectation) RunsOn(worker string) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect("to run on "+worker, func(s *messages.StepItem) verdict {
		return verdict{holds: s.GetStatus() == string(messages.StepRunning) && s.GetWorker() == worker, over: ended(s)}
	})
}

// Succeeds expects the step to end well.
func (e *StepExpectation) Succeeds() *StepExpectation {
	e.r.f.t.Helper()
	return e.ends("to succeed", messages.StepSucceeded)
}

// IsCancelled expects the step to end as cancelled.
func (e *StepExpectation) IsCancelled() *StepExpectation {
	e.r.f.t.Helper()
	return e.ends("to be cancelled", messages.StepCancelled)
}

// IsSkipped expects the step to be skipped.
func (e *StepExpectation) IsSkipped() *StepExpectation {
	e.r.f.t.Helper()
	return e.ends("to be skipped", messages.StepSkipped)
}

func (e *StepExpectation) ends(what string, as messages.StepStatus) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect(what, func(s *messages.StepItem) verdict {
		return verdict{holds: s.GetStatus() == string(as), over: ended(s)}
	})
}

// FailsWith expects the step to fail, with that code and with the text in its error.
func (e *StepExpectation) FailsWith(code messages.Code, text string) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect(strings.TrimSpace(fmt.Sprintf("to fail with %s %s", code, text)), func(s *messages.StepItem) verdict {
		failed := s.GetStatus() == string(messages.StepFailed)
		return verdict{holds: failed && s.GetCode() == string(code) && strings.Contains(s.GetError(), text), over: ended(s)}
	})
}

// WasDispatched expects the step to have been handed out so many times so far.
func (e *StepExpectation) WasDispatched(times int) *StepExpectation {
	e.r.f.t.Helper()
	return e.counted("to have been dispatched", messages.EventStepDispatched, times)
}

// WasLost expects the step to have been lost with its worker so many times so far.
func (e *StepExpectation) WasLost(times int) *StepExpectation {
	e.r.f.t.Helper()
	return e.counted("to have been lost", messages.EventStepWorkerLost, times)
}

// Waited expects the step to have entered the queue so many times so far.
func (e *StepExpectation) Waited(times int) *StepExpectation {
	e.r.f.t.Helper()
	return e.counted("to have waited", messages.EventStepQueued, times)
}

func (e *StepExpectation) counted(what, kind string, times int) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect(fmt.Sprintf("%s %d times", what, times), func(*messages.StepItem) verdict {
		n := len(e.events(kind))
		return verdict{holds: n == times, over: n > times, instead: fmt.Sprintf("it was %d times", n)}
	})
}

// Printed expects the step to have printed that line.
func (e *StepExpectation) Printed(line string) *StepExpectation {
	e.r.f.t.Helper()
	return e.expect(fmt.Sprintf("to print %q", line), func(*messages.StepItem) verdict {
		var lines []string
		for _, x := range e.events(messages.EventStepOutput) {
			lines = append(lines, x.GetLine())
		}
		return verdict{holds: slices.Contains(lines, line), instead: fmt.Sprintf("it has printed %q", lines)}
	})
}

// Succeeds expects the run to end well.
func (r *Run) Succeeds() { r.f.t.Helper(); r.ends("to succeed", messages.RunSucceeded, "") }

// FailsWith expects the run to fail, with the text in its error.
func (r *Run) FailsWith(text string) { r.f.t.Helper(); r.ends("to fail", messages.RunFailed, text) }

// IsCancelled expects the run to end as cancelled.
func (r *Run) IsCancelled() { r.f.t.Helper(); r.ends("to be cancelled", messages.RunCancelled, "") }

func (r *Run) ends(what string, as messages.RunStatus, text string) {
	r.f.t.Helper()
	if text != "" {
		what += " with " + text
	}
	r.f.expect(r.ID+" "+what, func() verdict {
		r.f.t.Helper()
		item := r.f.Show(r.ID)
		status := messages.RunStatus(item.GetStatus())
		r.mu.Lock()
		told := r.status != "" || r.lost != nil // its events are whole
		r.mu.Unlock()
		v := verdict{holds: status == as && strings.Contains(item.GetError(), text) && told, instead: "it is " + string(status)}
		v.over = status.Ended() && !v.holds && told
		if item.GetError() != "" {
			v.instead += ": " + item.GetError()
		}
		return v
	})
}

// WorkerExpectation is what a test expects of a worker, as the orchestrator sees it.
type WorkerExpectation struct {
	f    *Fleet
	name string
}

// Expect says how the orchestrator is to see a worker.
//
//	f.Expect("gpu-1").Is(messages.WorkerDraining)
func (f *Fleet) Expect(worker string) *WorkerExpectation { return &WorkerExpectation{f, worker} }

// Is expects the worker to have that status.
func (e *WorkerExpectation) Is(status messages.WorkerStatus) *WorkerExpectation {
	e.f.t.Helper()
	return e.expect("to be "+string(status), func(w *messages.WorkerItem) verdict {
		return verdict{holds: w.GetStatus() == string(status)}
	})
}

// Runs expects the worker to have so many dispatches.
func (e *WorkerExpectation) Runs(dispatches int) *WorkerExpectation {
	e.f.t.Helper()
	return e.expect(fmt.Sprintf("to run %d dispatches", dispatches), func(w *messages.WorkerItem) verdict {
		return verdict{holds: len(w.GetActiveDispatchIds()) == dispatches, instead: fmt.Sprintf("it runs %q", w.GetActiveDispatchIds())}
	})
}

func (e *WorkerExpectation) expect(what string, look func(*messages.WorkerItem) verdict) *WorkerExpectation {
	e.f.t.Helper()
	e.f.expect(fmt.Sprintf("worker %s %s", e.name, what), func() verdict {
		e.f.t.Helper()
		for _, w := range e.f.Workers() {
			if w.GetName() != e.name {
				continue
			}
			v := look(w)
			if v.instead == "" {
				v.instead = "it is " + w.GetStatus()
			}
			return v
		}
		return verdict{instead: "nobody knows it"}
	})
	return e
}

// ExpectQueue expects these steps to wait, the oldest first, and no others.
func (f *Fleet) ExpectQueue(steps ...string) {
	f.t.Helper()
	f.expect(fmt.Sprintf("the queue to hold %q", steps), func() verdict {
		f.t.Helper()
		names := []string{}
		for _, q := range f.Queue() {
			names = append(names, q.GetStepName())
		}
		return verdict{holds: slices.Equal(names, steps), instead: fmt.Sprintf("it holds %q", names)}
	})
}
