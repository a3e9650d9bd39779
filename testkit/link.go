package testkit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// enrollTimeout is how long a worker waits for the answer to its enrollment, and redialPause how long a persistent one
// waits before it dials again.
const (
	enrollTimeout = 10 * time.Second
	redialPause   = time.Second
)

var errNoAnswer = errors.New("testkit: no answer to the enrollment")

// link is one connection of a worker.
type link struct {
	*Socket
	dropped bool // by the test; guarded by the worker's mutex

	mu      sync.Mutex
	cut     bool // what still comes is lost
	answers map[string]chan *messages.Frame
}

func (l *link) expect(id string) <-chan *messages.Frame {
	ch := make(chan *messages.Frame, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[id] = ch
	return ch
}

// answered takes a frame that answers a request of ours.
func (l *link) answered(frame *messages.Frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch, ok := l.answers[frame.GetId()]
	if ok {
		delete(l.answers, frame.GetId())
		ch <- frame
	}
	return ok
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// cut ends the connection from this side, if there is one.
func (w *Worker) cut() {
	w.mu.Lock()
	l := w.link
	w.down(l, messages.Faultf(messages.CodeUnavailable, "the connection was cut"))
	w.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	l.Close()
	w.news.ring()
}

// down notes that the link is the worker's no more; mu is held.
func (w *Worker) down(l *link, why *messages.Fault) {
	if l == nil || w.link != l {
		return
	}
	w.link, w.fault, w.downSince = nil, why, time.Now()
}

// dialUntilAnswered dials again where no answer comes: the question, or the answer, may have been lost with an actor, with
// its socket, or with the orchestrator.
func (w *Worker) dialUntilAnswered(ctx context.Context, forget bool) error {
	for {
		err := w.dial(ctx, forget)
		var fault *messages.Fault
		answered := errors.As(err, &fault) && fault.Code != messages.CodeNotReady && fault.Code != messages.CodeUnavailable &&
			fault.Code != messages.CodeInternal
		if err == nil || answered || ctx.Err() != nil || !w.f.sleep(redialPause) {
			return err
		}
	}
}

// dial connects and enrolls, and starts to read.
func (w *Worker) dial(ctx context.Context, forget bool) error {
	w.mu.Lock()
	info := actors.ConnInfo{Remote: w.is.remote, Loopback: w.is.loopback}
	old := w.link
	w.mu.Unlock()
	socket, err := w.f.Dial(ctx, info)
	if err != nil {
		return err
	}
	l := &link{Socket: socket, answers: make(map[string]chan *messages.Frame)}
	w.mu.Lock()
	socket.name = w.is.name
	socket.Delay(w.is.delay)
	w.mu.Unlock()
	result, err := w.enroll(ctx, l, forget)
	if err != nil {
		l.Close()
		return err
	}
	w.mu.Lock()
	w.resume(result, forget)
	w.name, w.link, w.fault, w.downSince = result.GetWorker(), l, nil, time.Time{}
	w.killAfter = messages.Duration(result.GetGraceMs() - result.GetKillMarginMs())
	again := w.unfinished()
	w.mu.Unlock()
	if old != nil {
		old.mu.Lock()
		old.cut = true
		old.mu.Unlock()
		w.f.run(old.Close)
	}
	w.f.run(func() { w.read(l) })
	for _, d := range again {
		d.sayAgain()
	}
	w.news.ring()
	return nil
}

func (w *Worker) enroll(ctx context.Context, l *link, forget bool) (*messages.EnrollResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, enrollTimeout, errNoAnswer)
	defer cancel()
	frame := &messages.Frame{Id: "enroll", Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerEnroll, w.introduction(forget)),
	}}
	if err := l.write(ctx, frame); err != nil {
		return nil, err
	}
	for {
		frame, err := l.Read(ctx)
		switch {
		case err != nil:
			return nil, err
		case frame.GetError() != nil:
			return nil, frame.GetError().Fault()
		case frame.GetResponse().GetWorkerEnroll() != nil:
			return frame.GetResponse().GetWorkerEnroll(), nil
		}
	}
}

func (w *Worker) introduction(forget bool) *messages.EnrollParams {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &messages.EnrollParams{
		Token: w.is.token, MachineId: w.is.machine, InstanceUuid: w.is.instance, ProtocolMin: w.is.protocolMin,
		ProtocolMax: w.is.protocolMax, Version: version, Platform: w.is.platform, Arch: w.is.arch,
		Labels: messages.LabelsOf(w.is.labels).Proto(), Capacity: int32(w.is.capacity), DispatchSeq: w.seq,
		Intent: string(messages.IntentNone),
	}
	if w.is.draining {
		p.Intent, p.Reason = string(messages.IntentDraining), "signal"
	}
	if !forget {
		for _, d := range w.unfinished() {
			if d.refused() {
				continue // that it is not named says so
			}
			p.InFlight = append(p.InFlight, &messages.InFlight{
				DispatchId: d.ID(), Generation: d.generation(), State: "running", OutputOffset: d.offset,
				Result: d.last.GetResponse().GetWorkerDispatch(),
			})
		}
	}
	return p
}

// resume settles what was in flight when the worker came back; mu is held.
func (w *Worker) resume(result *messages.EnrollResult, forget bool) {
	verdicts := make(map[string]*messages.InFlightVerdict)
	for _, v := range result.GetInFlight() {
		verdicts[v.GetDispatchId()] = v
	}
	for _, d := range slices.Collect(maps.Values(w.known)) {
		switch v := verdicts[d.ID()]; {
		case forget || d.refused() || v.GetAction() == "abort":
			w.abort(d)
		case v.GetAction() == "resume":
			d.goOn(v.GetGeneration())
		default:
			d.waiting = true
			d.fence = w.fenceOf(d)
		}
	}
	w.early = make(map[string]bool)
}

// abort kills a dispatch that is not the worker's any more; mu is held.
func (w *Worker) abort(d *Dispatch) {
	if d.fence.IsZero() {
		d.fence = w.fenceOf(d)
	}
	if d.endedAt.IsZero() && !d.fence.IsZero() && d.fence.Before(time.Now()) {
		d.endedAt = d.fence
	}
	d.end()
	d.aborted = true
	delete(w.known, d.frame)
}

// fenceOf is when the keeper of a dispatch kills it, which was in flight when the connection went; zero: it was not; mu is
// held.
func (w *Worker) fenceOf(d *Dispatch) time.Time {
	if w.downSince.IsZero() || w.downSince.Before(d.acceptedAt) {
		return time.Time{}
	}
	return w.downSince.Add(w.killAfter)
}

// unfinished is what is known and not done, in the order of arrival; mu is held.
func (w *Worker) unfinished() []*Dispatch {
	var list []*Dispatch
	for _, d := range w.dispatches {
		if w.known[d.frame] == d {
			list = append(list, d)
		}
	}
	return list
}

// read handles what comes over a link until its end. A persistent worker then dials again.
func (w *Worker) read(l *link) {
	for {
		frame, err := l.Read(w.f.ctx)
		if err != nil {
			w.ended(l, err)
			return
		}
		if !l.isCut() {
			w.take(l, frame)
		}
	}
}

func (w *Worker) ended(l *link, err error) {
	fault := &messages.Fault{Code: messages.CodeUnavailable, Text: err.Error()}
	errors.As(err, &fault)
	w.mu.Lock()
	w.down(l, fault)
	mine := w.link == nil && w.is.persistent && !l.dropped
	w.mu.Unlock()
	w.news.ring()
	for mine && w.f.sleep(redialPause) {
		w.mu.Lock()
		mine = w.link == nil
		w.mu.Unlock()
		if err := w.dial(w.f.ctx, false); err == nil || messages.CodeOf(err).Permanent() {
			return
		}
	}
}

// take handles one frame.
func (w *Worker) take(l *link, frame *messages.Frame) {
	defer w.news.ring()
	switch body := frame.GetBody().(type) {
	case *messages.Frame_Request:
		if p := body.Request.GetWorkerDispatch(); p != nil {
			w.takeDispatch(frame.GetId(), p)
		} else if g := body.Request.GetWorkerGoodbye(); g != nil {
			w.mu.Lock()
			w.goodbyes = append(w.goodbyes, g)
			if g.GetReason() == "revoked" { // what runs under a revoked token is killed at once
				for _, d := range w.known {
					d.end()
				}
			}
			w.mu.Unlock()
			l.Send(&messages.Frame{Id: frame.GetId(), Body: &messages.Frame_Response{Response: messages.NewResponse(
				messages.VerbWorkerGoodbye, &messages.GoodbyeResult{})}})
		} else if p := body.Request.GetWorkerAbort(); p != nil {
			w.mu.Lock()
			for _, d := range w.unfinished() {
				if d.ID() == p.GetDispatchId() && d.generation() <= p.GetGeneration() {
					w.abort(d)
				}
			}
			w.mu.Unlock()
			l.Send(&messages.Frame{Id: frame.GetId(), Body: &messages.Frame_Response{Response: messages.NewResponse(
				messages.VerbWorkerAbort, &messages.AbortResult{})}})
		} else if o := body.Request.GetWorkerOrder(); o != nil {
			w.mu.Lock()
			obedient := w.is.obedient
			if !obedient {
				w.orders = append(w.orders, order{frame.GetId(), o.GetAction()})
			}
			w.mu.Unlock()
			if obedient {
				w.obey(order{frame.GetId(), o.GetAction()}, false)
			}
		}
	case *messages.Frame_Response, *messages.Frame_Error:
		l.answered(frame)
	case *messages.Frame_Cancel:
		w.mu.Lock()
		if d := w.known[frame.GetId()]; d != nil {
			d.cancelled, d.killed = true, d.killed || body.Cancel.GetForce()
		} else {
			w.early[frame.GetId()] = true
		}
		w.mu.Unlock()
	case *messages.Frame_Ack:
		w.mu.Lock()
		if d := w.known[frame.GetId()]; d != nil {
			d.acked = max(d.acked, body.Ack.GetOffset())
			d.acks++
			if body.Ack.GetDone() {
				d.done = true
				if d.last == nil { // it was given up over there
					w.abort(d)
				}
				d.waiting = false
				d.end()
				delete(w.known, d.frame)
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		l.answered(frame)
	}
}

// takeDispatch takes a dispatch, or says again what was said of one that is known, which goes on under its generation.
func (w *Worker) takeDispatch(lease string, p *messages.DispatchParams) {
	w.mu.Lock()
	for _, d := range w.unfinished() {
		if d.ID() != p.GetDispatchId() {
			continue
		}
		if p.GetGeneration() >= d.generation() {
			if p.GetGeneration() == d.generation() {
				d.repeats++
			}
			d.acked = max(d.acked, p.GetOutputFromOffset())
			d.goOn(p.GetGeneration())
			d.credential = p.GetCredential()
		}
		w.mu.Unlock()
		d.sayAgain()
		return
	}
	if p.GetSeq() <= w.seq || p.GetGeneration() > 1 { // a late repeat of one that is over, or one that was adopted and is over
		w.mu.Unlock()
		w.Send(&messages.Frame{Id: lease, Body: &messages.Frame_Error{Error: &messages.Error{Code: string(messages.CodeEnded), Text: "it has ended here"}}})
		return
	}
	w.seq = p.GetSeq()
	d := &Dispatch{Lease: lease, frame: lease, Params: p, credential: p.GetCredential(), w: w, cancelled: w.early[lease]}
	w.dispatches = append(w.dispatches, d)
	w.known[lease] = d
	handler := w.is.onDispatch
	w.mu.Unlock()
	if handler != nil {
		w.f.run(func() { handler(d) })
	}
}
