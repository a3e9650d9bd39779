package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// printer shows a run to whoever follows it.
type printer interface {
	// event takes the next event.
	event(*messages.RunEvent) error
	// note takes a line about something around the run, such as the connection.
	note(string)
	// close finishes what is shown.
	close() error
}

// jsonPrinter prints each event as a line of JSON, at once.
type jsonPrinter struct{ out, err io.Writer }

func (p *jsonPrinter) event(e *messages.RunEvent) error { return printShape(p.out, e) }
func (p *jsonPrinter) note(text string)                 { fmt.Fprintln(p.err, text) }
func (*jsonPrinter) close() error                       { return nil }

// linePrinter prints a run as lines that only ever grow, for a log.
type linePrinter struct {
	out, err io.Writer
	now      func() time.Time
	view     *runView
	joiner   *joiner
}

func newLinePrinter(out, err io.Writer, now func() time.Time, view *runView) *linePrinter {
	p := &linePrinter{out: out, err: err, now: now, view: view}
	p.joiner = newJoiner(joinLimit, func(key outputKey, text string) error {
		_, err := io.WriteString(out, key.step+" | "+text+"\n")
		return err
	})
	return p
}

func (p *linePrinter) event(e *messages.RunEvent) error {
	if e.GetKind() == messages.EventStepOutput {
		return p.joiner.add(e)
	}
	if messages.EndsDispatch(e.GetKind()) {
		if err := p.joiner.endStep(stepKey(e)); err != nil {
			return err
		}
	}
	p.view.apply(e, p.now())
	if line := p.view.eventLine(e); line != "" {
		_, err := io.WriteString(p.out, line+"\n")
		return err
	}
	return nil
}

func (p *linePrinter) note(text string) { fmt.Fprintln(p.err, text) }
func (p *linePrinter) close() error     { return p.joiner.endAll() }

// eventLine tells an event that the view has taken, or returns nothing where it is no news to a person.
func (v *runView) eventLine(e *messages.RunEvent) string {
	took := v.ended.Sub(v.started)
	switch e.GetKind() {
	case messages.EventRunStarted:
		return fmt.Sprintf("run %s of %s started", v.id, oneLine(v.workflow))
	case messages.EventRunSuspended:
		return "run suspended"
	case messages.EventRunResumed:
		return "run resumed"
	case messages.EventRunSucceeded:
		return "run succeeded in " + elapsed(took)
	case messages.EventRunFailed:
		return "run failed after " + elapsed(took) + colon(v.err)
	case messages.EventRunCancelled:
		return "run cancelled after " + elapsed(took)
	case messages.EventJobSkipped:
		return oneLine(e.GetJob()) + ": skipped"
	}
	if e.GetStep() == "" {
		return ""
	}
	name, step := oneLine(stepKey(e)), v.step(e.GetJob(), e.GetStep())
	switch e.GetKind() {
	case messages.EventStepQueued:
		what, why := step.waiting()
		return name + ": " + what + inBrackets(why)
	case messages.EventStepDispatched:
		line := name + ": running on " + oneLine(step.worker)
		if step.attempt > 1 {
			line += fmt.Sprintf(" (attempt %d)", step.attempt)
		}
		return line
	case messages.EventStepWorkerLost:
		return name + ": lost its worker " + oneLine(step.lost)
	case messages.EventStepRetrying:
		return name + ": will be tried again"
	case messages.EventStepWaitingApproval:
		return name + ": waiting for approval"
	case messages.EventStepSucceeded:
		return name + ": succeeded in " + elapsed(step.took)
	case messages.EventStepFailed:
		return name + ": failed" + colon(step.err)
	case messages.EventStepSkipped:
		return name + ": skipped"
	case messages.EventStepCancelled:
		return name + ": cancelled" + colon(step.err)
	default:
		return ""
	}
}

// waiting is the sentence of a step in the queue, and why it waits.
func (s *stepView) waiting() (what, why string) {
	return waitingFor + oneLine(s.requirement), reasonOnly(s.requirement, s.why)
}

const waitingFor = "waiting for a worker matching "

// reasonOnly takes what stands beside it already off the reason why something waits.
func reasonOnly(requirement, why string) string {
	return strings.TrimPrefix(strings.TrimPrefix(oneLine(why), waitingFor+oneLine(requirement)), ": ")
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + oneLine(text)
}
