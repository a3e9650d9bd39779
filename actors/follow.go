package actors

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// followPage is how many events are read at a time.
const followPage = 512

// unseenAfter is when a dispatch is looked at that nobody watched from its beginning. Most have ended by then.
const unseenAfter = 500 * time.Millisecond

// partialAfter is how long an unfinished line is held back for its end.
const partialAfter = 500 * time.Millisecond

func (sys *System) runWatch(ctx context.Context, p *messages.RunWatchParams, emit Emit) (proto.Message, error) {
	follower := sys.journal.Follow(p.GetRunId(), uint64(p.GetAfterSeq()))
	defer follower.Close()
	if _, err := sys.findRun(p.GetRunId()); err != nil { // once it is followed: its removal ends the follower
		return nil, err
	}
	status, err := sys.follow(ctx, follower, p.GetRunId(), uint64(p.GetAfterSeq()), p.GetOutput(), emit)
	if err != nil {
		return nil, err
	}
	return &messages.RunWatchResult{RunId: p.GetRunId(), Status: string(status)}, nil
}

// follow emits a run's events after the given number, with the output of its steps between them, until the run has
// ended. The whole output of a dispatch precedes the event that ends it.
func (sys *System) follow(ctx context.Context, follower *persistence.Follower, run string, after uint64, cursors []*messages.OutputCursor, emit Emit) (messages.RunStatus, error) {
	if emit == nil {
		return "", messages.Faultf(messages.CodeInvalid, "this verb streams")
	}
	s := newStory(sys, run, emit)
	defer s.close()
	for _, c := range cursors {
		s.offsets[c.GetDispatchId()] = uint64(c.GetOffset())
	}
	s.watch = sys.journal.WatchOutput()
	if ended, err := s.replay(after); err != nil || ended != "" {
		return ended, err
	}
	// A quiet follower costs nothing: both timers run only while there is something to look at.
	var partial, unseen <-chan time.Time
	for {
		if partial == nil && s.holds() {
			partial = time.After(partialAfter)
		}
		if unseen == nil && s.unseen {
			s.unseen, unseen = false, time.After(unseenAfter)
		}
		events, err := follower.Take()
		if errors.Is(err, persistence.ErrNotFound) {
			err = messages.Faultf(messages.CodeNotFound, "no run %s: it ended long ago, and was removed just now", run)
		}
		if err != nil {
			return "", err
		}
		for _, e := range events {
			ended, err := s.event(e)
			if err != nil || ended != "" {
				return ended, err
			}
		}
		if len(events) > 0 && ctx.Err() == nil {
			continue
		}
		select {
		case <-follower.Wake():
		case <-s.watch.Grown():
			for _, dispatch := range s.watch.Take() {
				if err := s.output(dispatch); err != nil {
					return "", err
				}
			}
		case <-unseen: // what was printed before anybody watched
			unseen = nil
			for dispatch := range s.tails {
				if err := s.output(dispatch); err != nil {
					return "", err
				}
			}
		case <-partial:
			partial = nil
			if err := s.partials(); err != nil {
				return "", err
			}
		case <-sys.failed:
			return "", messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// runLogs emits the output of a run's steps, those to come included where that is wanted.
func (sys *System) runLogs(ctx context.Context, p *messages.RunLogsParams, emit Emit) (proto.Message, error) {
	if _, err := sys.findRun(p.GetRunId()); err != nil {
		return nil, err
	}
	if emit == nil {
		return nil, messages.Faultf(messages.CodeInvalid, "this verb streams")
	}
	job, step, err := sys.namedStep(p.GetRunId(), p.GetStep())
	if err != nil {
		return nil, err
	}
	only := func(e *messages.Event) error {
		r := e.GetRun()
		if r.GetKind() != messages.EventStepOutput || (step != "" && r.GetStep() != step) || (job != "" && r.GetJob() != job) {
			return nil
		}
		return emit(e)
	}
	result := &messages.RunLogsResult{RunId: p.GetRunId()}
	if p.GetFollow() {
		follower := sys.journal.Follow(p.GetRunId(), 0)
		defer follower.Close()
		if _, err := sys.findRun(p.GetRunId()); err != nil {
			return nil, err
		}
		_, err := sys.follow(ctx, follower, p.GetRunId(), 0, nil, only)
		return result, err
	}
	s := newStory(sys, p.GetRunId(), only)
	defer s.close()
	for after := uint64(0); ctx.Err() == nil; {
		events, err := sys.journal.Events(p.GetRunId(), after, followPage)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			return result, s.rest()
		}
		for _, e := range events {
			if _, err := s.event(e); err != nil {
				return nil, err
			}
			after = e.Seq
		}
	}
	return nil, context.Cause(ctx)
}

// namedStep takes JOB/STEP apart, and refuses a step that the run does not have.
func (sys *System) namedStep(run, name string) (job, step string, err error) {
	if name == "" {
		return "", "", nil
	}
	job, step = splitStep(name)
	plan, err := sys.planOfRun(run)
	if err != nil {
		return "", "", err
	}
	for i := range plan.Steps {
		if plan.Steps[i].Name == step && (job == "" || plan.Jobs[plan.Steps[i].Job].Name == job) {
			return job, step, nil
		}
	}
	return "", "", messages.Faultf(messages.CodeNotFound, "run %s has no step %s", run, name)
}

// storyEvent is an event of a run as people get it. Those who follow the run share it.
type storyEvent struct {
	event *messages.RunEvent
	end   *uint32 // the end of the output of the dispatch that the event ends, if that is known
}

// Number implements persistence.Numbered.
func (e *storyEvent) Number(seq uint64) { e.event.Seq = uint32(seq) }

// parts takes what is not for people out of an event.
func (e *storyEvent) parts() {
	if e.event.GetKind() != messages.EventStepOutput {
		e.end, e.event.Offset = e.event.Offset, nil
	}
}

// story tells a run's events with the output between them.
type story struct {
	sys     *System
	run     string
	emit    Emit
	seq     uint32
	tails   map[string]*tail // by dispatch
	current map[[2]string]*tail
	offsets map[string]uint64
	unseen  bool                     // a dispatch has begun that may have printed before it was watched
	watch   *persistence.OutputWatch // nil: nobody waits for more
}

func newStory(sys *System, run string, emit Emit) *story {
	return &story{
		sys: sys, run: run, emit: emit, tails: make(map[string]*tail), current: make(map[[2]string]*tail),
		offsets: make(map[string]uint64),
	}
}

func (s *story) close() {
	if s.watch != nil {
		s.watch.Close()
	}
}

// replay goes through the events that the client has had, to know which dispatches are under way. It returns the run's
// status if the client has had the last one, and only the answer was lost: nothing would ever come after it.
func (s *story) replay(until uint64) (messages.RunStatus, error) {
	var ended messages.RunStatus
	for after := uint64(0); after < until; {
		events, err := s.sys.journal.Events(s.run, after, followPage)
		if err != nil {
			return "", err
		}
		if len(events) == 0 {
			return "", messages.Faultf(messages.CodeInvalid, "run %s has no event %d yet", s.run, until)
		}
		for _, e := range events {
			if e.Seq > until {
				break
			}
			r := &messages.RunEvent{}
			if err := proto.Unmarshal(e.Body, r); err != nil {
				return "", err
			}
			s.note(r)
			ended = endedBy(r.GetKind())
			after = e.Seq
		}
		if events[len(events)-1].Seq > until {
			break
		}
	}
	s.seq = uint32(until)
	for _, t := range s.tails {
		s.start(t)
	}
	return ended, nil
}

// note follows which dispatch a step has, and returns the one that the event ends.
func (s *story) note(r *messages.RunEvent) (over *tail) {
	key := [2]string{r.GetJob(), r.GetStep()}
	if messages.EndsDispatch(r.GetKind()) {
		if over = s.current[key]; over != nil {
			delete(s.current, key)
			delete(s.tails, over.dispatch)
		}
	}
	if r.GetKind() == messages.EventStepDispatched {
		t := &tail{dispatch: r.GetDispatchId(), job: r.GetJob(), step: r.GetStep(), offset: s.offsets[r.GetDispatchId()]}
		s.current[key], s.tails[t.dispatch] = t, t
	}
	return over
}

func (s *story) start(t *tail) {
	if s.watch != nil {
		s.watch.Add(t.dispatch)
		s.unseen = true
	}
}

// event emits one event, after the output that belongs before it. It returns the run's status if it was the last.
func (s *story) event(e persistence.Event) (messages.RunStatus, error) {
	fresh, ok := e.Value.(*storyEvent)
	if !ok {
		event, err := s.sys.decodeEvent(e.Body)
		if err != nil {
			return "", err
		}
		fresh = &storyEvent{event: event}
		fresh.parts()
		fresh.Number(e.Seq)
	}
	r := fresh.event
	if over := s.note(r); over != nil {
		if err := s.over(over, fresh.end); err != nil {
			return "", err
		}
	}
	s.seq = uint32(e.Seq)
	if err := s.emit(&messages.Event{Event: &messages.Event_Run{Run: r}}); err != nil {
		return "", err
	}
	if r.GetKind() == messages.EventStepDispatched {
		s.start(s.tails[r.GetDispatchId()])
	}
	return endedBy(r.GetKind()), nil
}

// endedBy is the status of a run after an event of that kind, if it is the run's last one.
func endedBy(kind string) messages.RunStatus {
	switch kind {
	case messages.EventRunSucceeded:
		return messages.RunSucceeded
	case messages.EventRunFailed:
		return messages.RunFailed
	case messages.EventRunCancelled:
		return messages.RunCancelled
	default:
		return ""
	}
}

// over emits the rest of what a dispatch has printed that has ended: up to the offset, if that is known.
func (s *story) over(t *tail, end *uint32) error {
	if s.watch != nil {
		s.watch.Remove(t.dispatch)
	}
	if end != nil && uint64(*end) <= t.offset {
		return s.pieces(t, t.flush(true))
	}
	return s.drain(t, true)
}

// output emits what a dispatch has printed since.
func (s *story) output(dispatch string) error {
	t := s.tails[dispatch]
	if t == nil {
		return nil
	}
	return s.drain(t, false)
}

// rest emits what the dispatches under way have printed so far.
func (s *story) rest() error {
	for _, t := range s.tails {
		if err := s.drain(t, true); err != nil {
			return err
		}
	}
	return nil
}

// holds tells whether an unfinished line is held back.
func (s *story) holds() bool {
	for _, t := range s.tails {
		if len(t.held) > 0 {
			return true
		}
	}
	return false
}

// partials emits unfinished lines that have waited long enough.
func (s *story) partials() error {
	for _, t := range s.tails {
		if len(t.held) > 0 && t.aged {
			if err := s.pieces(t, t.flush(false)); err != nil {
				return err
			}
		}
		t.aged = len(t.held) > 0
	}
	return nil
}

func (s *story) drain(t *tail, last bool) error {
	for {
		chunks, err := s.sys.journal.Output(t.dispatch, t.offset, 256<<10)
		if err != nil {
			return err
		}
		if len(chunks) == 0 {
			break
		}
		for _, c := range chunks {
			if err := s.pieces(t, t.take(c)); err != nil {
				return err
			}
		}
	}
	if last {
		return s.pieces(t, t.flush(true))
	}
	return nil
}

func (s *story) pieces(t *tail, pieces []piece) error {
	for i := range pieces {
		p := &pieces[i]
		offset := uint32(p.end)
		r := &messages.RunEvent{
			Kind: messages.EventStepOutput, Seq: s.seq, RunId: s.run, At: messages.Time(p.at), Job: &t.job, Step: &t.step,
			DispatchId: &t.dispatch, Stream: &p.stream, Line: &p.line, Partial: &p.partial, Offset: &offset,
		}
		if err := s.emit(&messages.Event{Event: &messages.Event_Run{Run: r}}); err != nil {
			return err
		}
	}
	return nil
}
