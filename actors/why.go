package actors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/workflow"
)

// askScheduler puts a question to the scheduler, which is stuck if it takes long. A why that waits for it would explain nothing.
func (sys *System) askScheduler(ctx context.Context, question func(*answer) any) (any, error) {
	limited, cancel := context.WithTimeoutCause(ctx, lookLimit, errStuck)
	defer cancel()
	got, err := sys.ask(limited, schedulerAddress(), question)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, errStuck
	}
	return got, err
}

// stuckScheduler is what there is to say then.
const stuckScheduler = "the scheduler does not answer, so nothing is handed out: look at it with swamp actor inspect scheduler"

// whySteps is how many steps of a run are explained, and whyText how many of them in its paragraph.
const (
	whySteps = 20
	whyText  = 3
)

// why answers why a run, a step or a worker does or does not do anything. What is live comes from the actors that decide, what
// has ended from the journal.
func (sys *System) why(ctx context.Context, p *messages.WhyParams) (proto.Message, error) {
	subject := p.GetSubject()
	if subject == "" || len(subject) > 512 {
		return nil, messages.Faultf(messages.CodeInvalid, "why needs a run's id, RUN/STEP, RUN/JOB/STEP or a worker's name")
	}
	name, step, ofStep := strings.Cut(subject, "/")
	r := &messages.RunRecord{}
	version, err := sys.read(persistence.KindRun, name, r)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return sys.whyWorker(ctx, subject, ofStep)
	}
	looks, cancel := context.WithTimeout(ctx, looksLimit)
	defer cancel()
	w := &whyRun{sys: sys, ctx: ctx, looks: looks, now: time.Now(), run: r}
	if err := w.read(); err != nil {
		return nil, err
	}
	if !ofStep {
		return w.whole()
	}
	ordinal, err := w.find(step)
	if err != nil {
		return nil, err
	}
	s, err := w.step(ordinal)
	if err != nil {
		return nil, err
	}
	return &messages.WhyResult{
		Kind: kindStep, Subject: r.GetRunId() + "/" + s.GetJob() + "/" + s.GetStep(), Status: s.GetStatus(), Text: s.GetText(),
		Steps: []*messages.WhyStep{s},
	}, nil
}

// whyRun explains the steps of one run.
type whyRun struct {
	sys      *System
	ctx      context.Context //nolint:containedctx // it lives as long as one answer
	looks    context.Context //nolint:containedctx // ends sooner: for questions to actors that may be stuck
	now      time.Time
	run      *messages.RunRecord
	plan     *workflow.Plan
	records  map[int]*messages.StepRecord
	progress *workflow.Progress // nil: the run has ended
}

func (w *whyRun) read() error {
	var err error
	if w.plan, err = w.sys.planOf(w.run); err != nil {
		return err
	}
	records, err := w.sys.steps(w.run.GetRunId())
	if err != nil {
		return err
	}
	w.records = make(map[int]*messages.StepRecord, len(records))
	done := make(map[int]messages.StepStatus)
	for _, r := range records {
		w.records[int(r.GetOrdinal())] = r
		if status := messages.StepStatus(r.GetStatus()); status.Ended() && int(r.GetOrdinal()) < len(w.plan.Steps) {
			done[int(r.GetOrdinal())] = status
		}
	}
	if !w.ended() {
		w.progress, _ = workflow.ResumeProgress(w.plan, workflow.Past{Ended: done})
	}
	return nil
}

func (w *whyRun) ended() bool { return messages.RunStatus(w.run.GetStatus()).Ended() }

// find takes JOB/STEP, or a step's name where one step has it. Both may have slashes in them.
func (w *whyRun) find(name string) (int, error) {
	var found []int
	for _, o := range w.ordinals() {
		job, step := w.names(o)
		switch name {
		case job + "/" + step:
			return o, nil
		case step:
			found = append(found, o)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		var all []string
		for _, o := range w.ordinals() {
			all = append(all, w.name(o))
		}
		return 0, messages.Faultf(messages.CodeNotFound, "run %s has no step %s%s", w.run.GetRunId(), name, nearestOf(name, all))
	default:
		var all []string
		for _, o := range found {
			all = append(all, w.name(o))
		}
		return 0, messages.Faultf(messages.CodeInvalid, "run %s has several steps %s: say which of %s", w.run.GetRunId(), name, strings.Join(all, ", "))
	}
}

// ordinals are those of the plan's steps, and of the instances that templates have been expanded into.
func (w *whyRun) ordinals() []int {
	var list []int
	for o := range w.plan.Steps {
		list = append(list, o)
	}
	for _, o := range slices.Sorted(maps.Keys(w.records)) {
		if o >= len(w.plan.Steps) {
			list = append(list, o)
		}
	}
	return list
}

// names are the names of a step and its job.
func (w *whyRun) names(o int) (job, step string) {
	if o >= len(w.plan.Steps) {
		return w.records[o].GetJob(), w.records[o].GetStep()
	}
	return w.plan.Jobs[w.plan.Steps[o].Job].Name, w.plan.Steps[o].Name
}

func (w *whyRun) name(o int) string {
	job, step := w.names(o)
	return job + "/" + step
}

// whole explains the run by its steps.
func (w *whyRun) whole() (proto.Message, error) {
	r := w.run
	result := &messages.WhyResult{Kind: kindRun, Subject: r.GetRunId(), Status: r.GetStatus()}
	counts := make(map[messages.StepStatus]int)
	var moving, waiting, pending, failed []int
	all := w.ordinals()
	for _, o := range all {
		status := messages.StepPending
		if rec := w.records[o]; rec != nil {
			status = messages.StepStatus(rec.GetStatus())
		}
		counts[status]++
		switch {
		case status == messages.StepFailed:
			failed = append(failed, o)
		case status.Ended():
		case status == messages.StepPending:
			pending = append(pending, o)
		case status == messages.StepQueued:
			waiting = append(waiting, o)
		default:
			moving = append(moving, o)
		}
	}
	shown := append(append(moving, waiting...), pending...)
	if w.ended() {
		shown = failed
	}
	if result.LeftOut = int32(max(len(shown)-whySteps, 0)); result.LeftOut > 0 {
		shown = shown[:whySteps]
	}
	for _, o := range shown {
		s, err := w.step(o)
		if err != nil {
			return nil, err
		}
		result.Steps = append(result.Steps, s)
	}
	var text sentences
	if w.ended() {
		w.tellEnd(&text)
	} else {
		w.tellProgress(&text, len(all), counts)
	}
	for i, s := range result.GetSteps() {
		if i == whyText {
			text.add("%d more steps are in JSON, or under their names.", len(result.GetSteps())-whyText+int(result.GetLeftOut()))
			break
		}
		if w.ended() && r.GetError() != "" && len(result.GetSteps()) == 1 && strings.Contains(r.GetError(), s.GetError()) {
			break // the run's own error has said it
		}
		text.add("%s", s.GetText())
	}
	result.Text = text.String()
	return result, nil
}

func (w *whyRun) tellEnd(text *sentences) {
	r := w.run
	started, ended := messages.GoTime(r.GetStartedAt()), messages.GoTime(r.GetEndedAt())
	text.add("Run %s of workflow %s has %s, %s ago, after %s.", r.GetRunId(), r.GetWorkflowName(), pastOf(r.GetStatus()), ago(w.now, ended), lasted(started, ended))
	if r.GetError() != "" {
		text.add("Its error: %s.", strings.TrimSuffix(r.GetError(), "."))
	}
	if r.GetCancelRequestedAt() != nil {
		text.add("A cancel was asked for by %s, %s after it began.", r.GetCancelRequestedBy(), lasted(started, messages.GoTime(r.GetCancelRequestedAt())))
	}
}

func (w *whyRun) tellProgress(text *sentences, steps int, counts map[messages.StepStatus]int) {
	r := w.run
	var parts []string
	over := 0
	for _, s := range messages.AllStepStatuses() {
		n := counts[s]
		switch {
		case n == 0:
		case s.Ended():
			over += n
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, statusWord(s)))
		}
	}
	state := "runs"
	if r.GetStatus() == string(messages.RunSuspended) {
		state = "is suspended"
	}
	text.add("Run %s of workflow %s %s, for %s now: of %d steps %s.", r.GetRunId(), r.GetWorkflowName(), state,
		ago(w.now, messages.GoTime(r.GetStartedAt())), steps, strings.Join(append([]string{fmt.Sprintf("%d ended", over)}, parts...), ", "))
	if r.GetCancelRequestedAt() != nil {
		text.add("A cancel was asked for by %s %s ago: nothing new begins, and it ends when what is under way has.",
			r.GetCancelRequestedBy(), ago(w.now, messages.GoTime(r.GetCancelRequestedAt())))
	}
}

// statusWord is what some steps of a run do.
func statusWord(s messages.StepStatus) string {
	switch s {
	case messages.StepQueued:
		return "in line"
	case messages.StepRunning:
		return "with a worker"
	case messages.StepPending:
		return "not begun"
	default:
		return strings.ReplaceAll(string(s), "_", " ")
	}
}

// pastOf is a final status as a participle.
func pastOf(status string) string {
	if status == string(messages.RunCancelled) {
		return "been cancelled"
	}
	if status == string(messages.StepSkipped) {
		return "been skipped"
	}
	return status
}

// sentences make a paragraph.
type sentences struct{ b strings.Builder }

func (s *sentences) add(format string, args ...any) {
	if s.b.Len() > 0 {
		s.b.WriteByte(' ')
	}
	fmt.Fprintf(&s.b, format, args...)
}

func (s *sentences) String() string { return s.b.String() }

// ago is how long ago something was, and lasted how long something took, both as people say it.
func ago(now, then time.Time) string { return lasted(then, now) }

func lasted(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "an unknown time"
	}
	return spoken(to.Sub(from))
}

func spoken(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < day:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
}

// nearestOf proposes the names that are most like one that is not there.
func nearestOf(name string, all []string) string {
	near := nearest(name, all, 3)
	switch len(near) {
	case 0:
		return ""
	case 1:
		return ": the nearest is " + near[0]
	default:
		return ": the nearest are " + strings.Join(near, ", ")
	}
}
